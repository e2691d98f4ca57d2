"""What the interface says, in every language. What an option is for stands with the option, in conf/options.py."""

from __future__ import annotations

from typing import Final

from colab_alloc.language import Words

# What became of an option (Status.outcome), and whether that is good, to come, or bad.
OUTCOMES: Final = {
    "in effect": ("good", Words("in effect, {source}", "سارٍ، {source}")),
    "at CUDA start": ("wait", Words("will be read when CUDA starts", "سيُقرأ عند بدء CUDA")),
    "refused": (
        "bad",
        Words("not to be had with this text, which PyTorch refuses", "لن يتحقق بهذا النص، فإن PyTorch يرفضه"),
    ),
    "misread": (
        "bad",
        Words("PyTorch will read {variable} otherwise than it looks", "سيقرأ PyTorch {variable} على غير ما يبدو"),
    ),
    "needs a restart": (
        "wait",
        Words(
            "needs a kernel restart: too late in this process", "يحتاج إلى إعادة تشغيل النواة: فات أوانه في هذه العملية"
        ),
    ),
    "ignored": ("bad", Words("not read by the back end cudaMallocAsync", "لا يقرؤه المخصِّص cudaMallocAsync")),
    "not in effect": (
        "bad",
        Words("not in effect: {variable} was changed after CUDA had started", "غير سارٍ: تغيّر {variable} بعد بدء CUDA"),
    ),
    "unknown": ("wait", Words("whether it is in effect is not shown", "لا يظهر أسارٍ هو أم لا")),
}
READ_BACK: Final = Words("read back from PyTorch's allocator", "كما قُرئ من مخصِّص PyTorch نفسه")
TOLD: Final = Words(
    "by the text that PyTorch's allocator read; it does not show more",
    "بحسب النص الذي قرأه مخصِّص PyTorch؛ فهو لا يُظهر أكثر من ذلك",
)
NOTHING_ASKED: Final = Words(
    "Nothing is asked for: PyTorch uses its defaults", "لا شيء مطلوب: يستعمل PyTorch قيمه الافتراضية"
)

CUDA_HAS_STARTED: Final = Words("CUDA has started", "بدأ CUDA")
CUDA_HAS_NOT_STARTED: Final = Words("CUDA has not started", "لم يبدأ CUDA بعد")
NO_PYTORCH: Final = Words("PyTorch is not installed", "PyTorch غير مثبّت")

# The panel
TITLE: Final = Words("PyTorch's GPU memory settings", "إعدادات ذاكرة وحدة معالجة الرسوم في PyTorch")
PRESET: Final = Words("Start from", "ابدأ من")
NO_PRESET: Final = Words("choose a case ...", "اختر حالة ...")
DOCUMENTATION: Final = Words("Documentation", "الوثائق")
MORE_OPTIONS: Final = Words("More options ({count})", "خيارات أخرى ({count})")
NOT_IN_THIS_PYTORCH: Final = Words("Not in this PyTorch ({count})", "ليست في هذا الإصدار من PyTorch ({count})")
CAME: Final = Words("came with PyTorch {release}", "جاء مع PyTorch {release}")
WENT: Final = Words("was last in PyTorch {release}", "كان آخر ما كان في PyTorch {release}")
TYPE_A_SIZE: Final = Words("or MiB", "أو ميبي بايت")
NOT_A_SIZE: Final = Words(
    "{name} takes a whole number of MiB, such as 128, not {text}",
    "يأخذ {name} عددًا صحيحًا من الميبي بايت، مثل 128، لا {text}",
)
OFF: Final = Words("off", "معطّل")
UNLIMITED: Final = Words("unlimited", "بلا حدّ")
PER_SIZE: Final = Words("per size ...", "بحسب الحجم ...")
UP_TO: Final = Words("up to {size} MiB", "حتى {size} ميبي بايت")
LARGER: Final = Words("larger", "أكبر من ذلك")
DIVISIONS: Final = Words("divisions", "أجزاء")
SIZE: Final = Words("sizes", "الأحجام")
ADD_SIZE: Final = Words("Add a size", "أضف حجمًا")
ZERO_IS_OFF: Final = Words("0 is off.", "والقيمة 0 تعطيل.")
REMOVE_SIZE: Final = Words("Remove", "احذف")

CHANGED: Final = Words("changed, not applied yet", "تغيّر ولم يُطبَّق بعد")
CHANGED_NEEDS_RESTART: Final = Words(
    "changed, not applied yet; needs a kernel restart", "تغيّر ولم يُطبَّق بعد؛ يحتاج إلى إعادة تشغيل النواة"
)
NOT_APPLIED: Final = Words("Not applied yet: {settings}", "لم يُطبَّق بعد: {settings}")
THE_LINE: Final = Words("What PyTorch gets", "ما يصل إلى PyTorch")
NOT_SET: Final = Words("is not set: PyTorch's defaults", "غير مضبوط: قيم PyTorch الافتراضية")
FOR_A_SCRIPT: Final = Words("For a script, before it imports torch", "لبرنامج، قبل أن يستورد torch")
FOR_A_SHELL: Final = Words("For a shell", "لسطر الأوامر")
COPY: Final = Words("Copy", "انسخ")
COPIED: Final = Words("Copied", "نُسخ")

APPLY: Final = Words("Apply", "طبّق")
RESET: Final = Words("Reset", "أعد الافتراضي")
RESTART: Final = Words("Restart and apply", "أعد التشغيل وطبّق")
REALLY_RESTART: Final = Words("Really restart? All variables are lost", "أتعيد التشغيل حقًا؟ ستضيع كل المتغيرات")
KEEP: Final = Words("Keep for every new kernel", "احفظ لكل نواة جديدة")
CLOSE: Final = Words("Close", "أغلق")
FORGET: Final = Words("Forget what is kept", "انسَ المحفوظ")
WHILE_A_CELL_RUNS: Final = Words(
    "While a cell runs, a click waits until it ends.", "ما دامت خلية تعمل تنتظر النقرة حتى تنتهي."
)
WAITS: Final = Words(
    "Waiting for the running cell to end; nothing is changed yet", "بانتظار انتهاء الخلية؛ لم يتغيّر شيء بعد"
)
KEPT: Final = Words(
    "Kept for every new kernel of this profile: {settings}", "محفوظ لكل نواة جديدة في هذا الملف الشخصي: {settings}"
)
KEPT_ON_COLAB: Final = Words("On Colab that lasts as long as this machine", "وفي Colab يدوم ذلك ما بقيت هذه الآلة")
FORGOTTEN: Final = Words("Nothing is kept for new kernels any more", "لم يعد شيء محفوظًا للنوى الجديدة")
REFUSED: Final = Words("Nothing was changed: {error}", "لم يتغيّر شيء: {error}")
DEFAULTS: Final = Words("PyTorch's defaults", "قيم PyTorch الافتراضية")

# A restart
RESTART_WITH: Final = Words("Restart with: %alloc_conf --restart", "أعد التشغيل بالأمر %alloc_conf --restart")
RESTARTING: Final = Words("Restarting the kernel; then in effect: {settings}", "تُعاد النواة؛ ثم يسري: {settings}")
RESTART_BY_HAND: Final = Words(
    "{settings} waits for this kernel's next start: {by_hand}", "ينتظر {settings} بدء هذه النواة من جديد: {by_hand}"
)
UNLESS_CARRIED: Final = Words(
    "If the new kernel's first cell does not say that it was carried over, run {line}",
    "إن لم تقل أول خلية في النواة الجديدة إن الإعدادات نُقلت، فشغّل {line}",
)
RUN_AGAIN: Final = Words(
    "Run this cell again for a panel of the new kernel", "شغّل هذه الخلية ثانية للوحة النواة الجديدة"
)
PREPARE_RESTART: Final = Words("Leave for the restart", "اترك لإعادة التشغيل")
NOTHING_SET: Final = Words("nothing set", "غير أن يُضبط شيء")
LOAD_FIRST: Final = Words(
    "In the new kernel, run %load_ext colab_alloc first: that brings the settings",
    "في النواة الجديدة شغّل %load_ext colab_alloc أولًا: فهو يأتي بالإعدادات",
)
CANNOT_RESTART: Final = Words(
    "{front_end} cannot be restarted from here: {by_hand}, with {assignment}",
    "لا يمكن إعادة تشغيل {front_end} من هنا: {by_hand}، مع {assignment}",
)
