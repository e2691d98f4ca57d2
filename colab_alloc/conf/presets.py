"""Configurations to start from, each with what it is for and where PyTorch says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from colab_alloc.conf.conf import AllocConf
from colab_alloc.conf.options import OPTIONS
from colab_alloc.conf.version import Release
from colab_alloc.language import Words

DOCUMENTATION: Final = (
    "https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
)
_NOTES: Final = "docs/source/notes/cuda.rst, Optimizing memory usage with PYTORCH_CUDA_ALLOC_CONF"


@dataclass(frozen=True)
class Preset:
    """A configuration to start from.

    Args:
        name: what a person would call their case.
        purpose: what it does for that case, and what it costs.
        conf: the settings; all other options are at their defaults.
        source: where PyTorch's documentation or code says so.
    """

    name: Words
    purpose: Words
    conf: AllocConf
    source: str

    def known_to(self, torch: Release) -> bool:
        """Say whether that release takes all of it."""
        return all(OPTIONS[name].known_to(torch) for name in self.conf)


PRESETS: Final = (
    Preset(
        name=Words("PyTorch's defaults", "القيم الافتراضية في PyTorch"),
        purpose=Words("Nothing set: right for most programs.", "لا شيء مضبوط: مناسب لأكثر البرامج."),
        conf=AllocConf(),
        source=_NOTES,
    ),
    Preset(
        name=Words("Training, sizes change from step to step", "تدريب تتغيّر أحجامه من خطوة إلى أخرى"),
        purpose=Words(
            "Segments grow as needed, so changing batch sizes or sequence lengths leave fewer gaps.",
            "تكبر المقاطع عند الحاجة، فلا تترك أحجام الدفعات أو أطوال المتتاليات المتغيّرة فجوات كثيرة.",
        ),
        conf=AllocConf(expandable_segments=True),
        source=f"{_NOTES}: expandable_segments",
    ),
    Preset(
        name=Words("Training, fragmented, without expandable segments", "تدريب تجزّأت ذاكرته، بلا مقاطع متمدّدة"),
        purpose=Words(
            "Large cached blocks stay whole. A last resort when much memory lies in inactive split blocks; slower.",
            "تبقى الكتل المخبّأة الكبيرة كاملة. ملجأ أخير حين تكثر الكتل المقطَّعة الخاملة؛ وقد يكون أبطأ.",
        ),
        conf=AllocConf(max_split_size_mb=128),
        source=f"{_NOTES}: max_split_size_mb (128 is a usual value, not PyTorch's)",
    ),
    Preset(
        name=Words("Many sizes that differ a little", "أحجام كثيرة متقاربة"),
        purpose=Words(
            "Rounds sizes up so that they share blocks; it costs the bytes it rounds up.",
            "يقرّب الأحجام إلى أعلى لتتقاسم الكتل. وثمنه ما يضيفه التقريب من بايتات.",
        ),
        conf=AllocConf(roundup_power2_divisions=((256, 1), (512, 2), (1024, 4), (">", 8))),
        source=f"{_NOTES}: roundup_power2_divisions, its example",
    ),
    Preset(
        name=Words("Long-running inference", "استدلال طويل التشغيل"),
        purpose=Words(
            "Unused cached blocks are given back one by one from 80 % of the limit on, instead of all at once when"
            " memory runs out, which stalls a server. The limit here is 90 % of the GPU.",
            "تُعاد الكتل المخبّأة غير المستعملة واحدة واحدة ابتداءً من 80٪ من الحدّ، بدل إعادتها كلها حين تنفد الذاكرة"
            " فيتوقف الخادم. والحدّ هنا 90٪ من ذاكرة الوحدة.",
        ),
        conf=AllocConf(garbage_collection_threshold=0.8, per_process_memory_fraction=0.9),
        source=f"{_NOTES}: garbage_collection_threshold; the limit is CUDACachingAllocator.cpp's condition for it",
    ),
    Preset(
        name=Words("CUDA graphs over several streams", "رسوم CUDA على عدة مجارٍ"),
        purpose=Words(
            "Memory used on several streams can be reused inside a capture. Experimental; no effect without captures.",
            "يُعاد داخل الالتقاط استعمال ذاكرة استُعملت على عدة مجارٍ. تجريبي؛ ولا أثر له بغير التقاط.",
        ),
        conf=AllocConf(graph_capture_record_stream_reuse=True),
        source=f"{_NOTES}: graph_capture_record_stream_reuse",
    ),
)
