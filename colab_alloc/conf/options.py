"""Every option of PyTorch's allocator variable: the only place that knows names, ranges, defaults and versions.

Names and first releases are from the strings in libc10_cuda.so and libc10.so of the released wheels, ranges from
running the releases named in `Option.source` and from AllocatorConfig.h and CUDAAllocatorConfig.h.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final, Union

from colab_alloc.conf.divisions import Divisions
from colab_alloc.conf.version import Release
from colab_alloc.language import Words


class Unlimited(enum.Enum):
    """The default of sizes that have no limit. PyTorch has no word for it: it is what an absent option means."""

    UNLIMITED = "unlimited"

    def __str__(self) -> str:
        return self.value

    def __repr__(self) -> str:
        return "UNLIMITED"


UNLIMITED: Final = Unlimited.UNLIMITED

Value = Union[bool, int, float, str, Divisions, Unlimited]  # noqa: UP007 - evaluated at run time on Python 3.10


class Kind(enum.Enum):
    """What an option's value is."""

    BACKEND = "one of the back ends"
    MIB = "a whole number of MiB"
    COUNT = "a whole number"
    FRACTION = "a number between 0 and 1"
    FLAG = "True or False"
    DIVISIONS = "a power of two, or a list of size:number pairs in brackets"


_WIDGETS: Final = {
    Kind.BACKEND: "choice",
    Kind.MIB: "logarithmic slider with a box",
    Kind.COUNT: "choice",
    Kind.FRACTION: "slider",
    Kind.FLAG: "toggle",
    Kind.DIVISIONS: "table of sizes",
}


class Change(enum.Enum):
    """Until when an option can still be changed in a running process."""

    ANY_TIME = Words("at any time", "في أي وقت")
    BEFORE_CUDA = Words("before CUDA starts", "قبل بدء CUDA")
    BEFORE_IMPORT = Words("before PyTorch is imported", "قبل استيراد PyTorch")


@dataclass(frozen=True)
class Range:
    """The values PyTorch takes from one release on.

    Args:
        low, high: the ends, in the option's own unit; None is "no end".
        inclusive: whether the ends themselves are taken.
        since: the first release this range holds for.
    """

    low: float | None = None
    high: float | None = None
    inclusive: bool = True
    since: Release = (0, 0)

    def holds(self, number: float) -> bool:
        """Say whether the number lies in the range."""
        if self.inclusive:
            return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)
        return (self.low is None or number > self.low) and (self.high is None or number < self.high)

    @property
    def words(self) -> Words:
        """The range, said."""
        if self.low is not None and self.high is not None:
            excluded = Words("", "") if self.inclusive else Words(", ends excluded", "، دون الطرفين")
            between = Words(f"between {self.low:g} and {self.high:g}", f"بين {self.low:g} و{self.high:g}")
            return Words(between.en + excluded.en, between.ar + excluded.ar)
        if self.low is not None and self.inclusive:
            return Words(f"{self.low:g} or more", f"{self.low:g} أو أكثر")
        if self.low is not None:
            return Words(f"more than {self.low:g}", f"أكثر من {self.low:g}")
        return Words("any number", "أي عدد")


@dataclass(frozen=True)
class Option:
    """One option of the variable.

    Args:
        name: as PyTorch spells it.
        kind: what its value is; sizes are in MiB.
        default: what PyTorch uses when the option is absent.
        summary: what it does, in one sentence for a person choosing it.
        use: when it helps, in another.
        source: where the facts of this row come from.
        since, until: the first and the last release that know it; `until` None is "the newest known still does".
        change: until when it can be changed in a running process.
        ranges: the values taken, oldest release first; empty when every value of the kind is.
        reset_since: the first release in which setting other options at run time silently resets this one.
        setting_key: its key in the allocator_settings of a memory snapshot; None where PyTorch does not show it.
        shared: whether it is one of the options that all accelerators share, from 2.10 on; those have a parser of
            their own.
        needs: the option without which, at its default, this one does nothing.
        aliases: other names PyTorch takes for it.
        examples: values worth trying first, for completion and for forms.
        common: whether most people who set anything set this one; it is then always shown.
    """

    name: str
    kind: Kind
    default: Value
    summary: Words
    use: Words
    source: str
    since: Release
    until: Release | None = None
    change: Change = Change.ANY_TIME
    ranges: tuple[Range, ...] = ()
    reset_since: Release | None = None
    setting_key: str | None = None
    shared: bool = False
    needs: str | None = None
    aliases: tuple[str, ...] = ()
    examples: tuple[Value, ...] = ()
    common: bool = False

    def known_to(self, torch: Release) -> bool:
        """Say whether that release's parser takes the name."""
        return self.since <= torch and (self.until is None or torch <= self.until)

    def range_in(self, torch: Release) -> Range:
        """Return the range that holds in that release."""
        return max((r for r in self.ranges if r.since <= torch), key=lambda r: r.since, default=Range())

    def reset_by_others(self, torch: Release) -> bool:
        """Say whether a run-time change of other options resets this one, unless it is named again."""
        return self.reset_since is not None and self.reset_since <= torch

    @property
    def widget(self) -> str:
        """The control that suits the option in a form."""
        return _WIDGETS[self.kind]

    @property
    def default_can_be_written(self) -> bool:
        """Whether PyTorch accepts the default as a value: `unlimited`, and 0 for "off", are only had by leaving out."""
        return self.kind in {Kind.BACKEND, Kind.FLAG} or (
            self.default is not UNLIMITED
            and isinstance(self.default, (int, float))
            and self.kind is not Kind.DIVISIONS
            and all(r.holds(self.default) for r in self.ranges)
        )


BACKENDS: Final = ("native", "cudaMallocAsync")

# max_split_size_mb and max_non_split_rounding_mb: "must be > 20" up to 2.9, ">= 20" from 2.10 on.
_ABOVE_LARGE_SEGMENT: Final = (Range(low=21), Range(low=20, since=(2, 10)))

_TABLE: Final = (
    Option(
        name="backend",
        kind=Kind.BACKEND,
        default="native",
        summary=Words(
            "Which allocator serves the GPU: PyTorch's own caching allocator, or CUDA's asynchronous one.",
            "أيّ مخصِّص يخدم وحدة معالجة الرسوم: مخصِّص PyTorch ذو الذاكرة المخبّأة، أم مخصِّص CUDA غير المتزامن.",
        ),
        use=Words(
            "cudaMallocAsync shares memory with other libraries more readily, but has no options and shows no blocks.",
            "يتقاسم cudaMallocAsync الذاكرة مع المكتبات الأخرى بسهولة أكبر، لكنه بلا خيارات ولا يُظهر الكتل.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 1.13.1, from 2.0.1 on",
        since=(2, 0),
        change=Change.BEFORE_IMPORT,
        common=True,
        examples=("native", "cudaMallocAsync"),
    ),
    Option(
        name="max_split_size_mb",
        kind=Kind.MIB,
        default=UNLIMITED,
        summary=Words(
            "Cached blocks of this size or more are not cut up for smaller requests, so they can be reused whole.",
            "الكتل المخبّأة التي تبلغ هذا الحجم أو تزيد لا تُقطَّع لطلبات أصغر، فيُعاد استعمالها كاملة.",
        ),
        use=Words(
            "Try it when much memory is reserved but unallocated because large blocks have been cut up.",
            "جرّبه إذا كان قدر كبير من الذاكرة محجوزًا غير مستعمل لأن الكتل الكبيرة قُطِّعت.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 1.9.1, from 1.10.2 on",
        since=(1, 10),
        ranges=_ABOVE_LARGE_SEGMENT,
        reset_since=(1, 10),
        setting_key="max_split_size",
        common=True,
        shared=True,
        examples=(64, 128, 256, 512, UNLIMITED),
    ),
    Option(
        name="roundup_power2_divisions",
        kind=Kind.DIVISIONS,
        default=0,
        summary=Words(
            "Rounds requests up to fractions of a power of two, so that slightly different sizes share blocks.",
            "يقرّب الطلبات إلى أعلى، إلى أجزاء من قوى العدد اثنين، فتتقاسم الأحجام المتقاربة الكتل نفسها.",
        ),
        use=Words(
            "Try it when sizes vary a little from step to step; it costs the bytes it rounds up.",
            "جرّبه إذا كانت الأحجام تتغيّر قليلًا من خطوة إلى أخرى؛ وثمنه هو البايتات التي يضيفها التقريب.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 1.11.0, from 1.12.1 on; 1.13 read: one number only",
        since=(1, 12),
        reset_since=(1, 12),
        setting_key="roundup_power2_divisions",
        common=True,
        shared=True,
        examples=(4, 8, 16, ((256, 1), (512, 2), (1024, 4), (">", 8))),
    ),
    Option(
        name="roundup_bypass_threshold_mb",
        kind=Kind.MIB,
        default=UNLIMITED,
        summary=Words(
            "Requests of this size or more were not rounded by roundup_power2_divisions.",
            "الطلبات التي تبلغ هذا الحجم أو تزيد لم يكن roundup_power2_divisions يقرّبها.",
        ),
        use=Words(
            "It existed to keep very large requests from wasting memory on rounding.",
            "وُجد كي لا تُهدَر الذاكرة بتقريب الطلبات الكبيرة جدًا.",
        ),
        source="binaries: not yet in 1.12.1, in 1.13.1 and 2.0.1, no longer in 2.1.0; run: refused by 2.9.1, 2.14.1",
        since=(1, 13),
        until=(2, 0),
        reset_since=(1, 13),
        examples=(256, 1024, UNLIMITED),
    ),
    Option(
        name="garbage_collection_threshold",
        kind=Kind.FRACTION,
        default=0.0,
        summary=Words(
            "Above this share of the memory limit, unused cached blocks are given back, oldest first.",
            "إذا زاد الاستعمال على هذه النسبة من حدّ الذاكرة أُعيدت الكتل المخبّأة غير المستعملة، الأقدم فالأحدث.",
        ),
        use=Words(
            "It needs a memory limit to measure against, and avoids releasing everything at once.",
            "يحتاج إلى حدّ للذاكرة يقيس عليه، ويغني عن إفراغ المخبأ كله دفعة واحدة.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 1.11.0, from 1.12.1 on",
        since=(1, 12),
        ranges=(Range(low=0, high=1, inclusive=False),),
        reset_since=(1, 12),
        setting_key="garbage_collection_threshold",
        common=True,
        shared=True,
        examples=(0.6, 0.8, 0.9),
    ),
    Option(
        name="expandable_segments",
        kind=Kind.FLAG,
        default=False,
        summary=Words(
            "Segments grow instead of being added to, so that free memory does not lie in pieces of fixed size.",
            "تكبر المقاطع بدل أن يُضاف غيرها، فلا تتبعثر الذاكرة الحرة قطعًا ثابتة الحجم.",
        ),
        use=Words(
            "Try it first when memory is fragmented; not on Windows, nor with libraries that share or pause memory.",
            "ابدأ به إذا تجزّأت الذاكرة؛ لا على Windows، ولا مع مكتبات تتشارك الذاكرة أو توقفها مؤقتًا.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.0.1, from 2.1.0 on",
        since=(2, 1),
        setting_key="expandable_segments",
        common=True,
        shared=True,
        examples=(True, False),
    ),
    Option(
        name="max_non_split_rounding_mb",
        kind=Kind.MIB,
        default=20,
        summary=Words(
            "How much larger than the request a block above max_split_size_mb may be and still be reused whole.",
            "كم يجوز أن تزيد كتلة أكبر من max_split_size_mb على الطلب ويُعاد استعمالها كاملة.",
        ),
        use=Words(
            "Raise it if requests above max_split_size_mb fail although slightly larger blocks are free.",
            "ارفعه إذا فشلت طلبات أكبر من max_split_size_mb مع وجود كتل حرة أكبر منها بقليل.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.5.1, from 2.6.0 on",
        since=(2, 6),
        ranges=_ABOVE_LARGE_SEGMENT,
        needs="max_split_size_mb",
        reset_since=(2, 10),
        shared=True,
        examples=(64, 128, 256),
    ),
    Option(
        name="large_segment_size_mb",
        kind=Kind.MIB,
        default=20,
        summary=Words(
            "The size of the segments that serve requests of 1 to 10 MiB.",
            "حجم المقاطع التي تخدم الطلبات بين 1 و10 ميبي بايت.",
        ),
        use=Words(
            "A larger one means fewer calls to the driver, and more memory held for medium-sized tensors.",
            "المقطع الأكبر يعني نداءات أقل إلى برنامج التشغيل، وذاكرة محجوزة أكثر للموترات المتوسطة.",
        ),
        source="run: 2.11.0, 2.14.1; binaries: not yet in 2.10.0",
        since=(2, 11),
        ranges=(Range(low=11),),
        shared=True,
        examples=(20, 40, 64),
    ),
    Option(
        name="per_process_memory_fraction",
        kind=Kind.FRACTION,
        default=1.0,
        summary=Words(
            "The share of the GPU's memory this process may take.",
            "النسبة التي يجوز لهذه العملية أخذها من ذاكرة وحدة معالجة الرسوم.",
        ),
        use=Words(
            "Use it to leave room for other processes, or to try how a model fares on a smaller GPU.",
            "استعمله لتترك متسعًا لعمليات أخرى، أو لتجرّب نموذجًا على وحدة أصغر.",
        ),
        source="run: 2.11.0, 2.14.1, refused by 2.9.1; binaries: from 2.10.0 on",
        since=(2, 10),
        ranges=(Range(low=0, high=1),),
        examples=(0.5, 0.9, 1.0),
    ),
    Option(
        name="throw_on_cudamalloc_oom",
        kind=Kind.FLAG,
        default=False,
        summary=Words(
            "Refuses a request that would pass per_process_memory_fraction at once, without freeing cached blocks.",
            "يرفض فورًا الطلب الذي يتجاوز per_process_memory_fraction، من غير أن يحرّر الكتل المخبّأة.",
        ),
        use=Words(
            "It makes out-of-memory errors quick and clear, also where freeing the cache would have helped.",
            "يجعل أخطاء نفاد الذاكرة سريعة واضحة، حتى حيث كان تحرير المخبأ ينفع.",
        ),
        source="run: 2.14.1, refused by 2.11.0; binaries: from 2.12.0 on",
        since=(2, 12),
        examples=(True, False),
    ),
    Option(
        name="release_lock_on_cudamalloc",
        kind=Kind.FLAG,
        default=False,
        summary=Words(
            "Lets other threads use the allocator while one waits for the driver.",
            "يتيح لخيوط أخرى استعمال المخصِّص بينما ينتظر أحدها برنامج التشغيل.",
        ),
        use=Words(
            "It helps programs that allocate from several threads; the bytes stay the same.",
            "ينفع البرامج التي تخصِّص من عدة خيوط؛ أما البايتات فتبقى كما هي.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.1.2, from 2.2.0 on",
        since=(2, 2),
        setting_key="release_lock_on_cudamalloc",
        aliases=("release_lock_on_hipmalloc",),
        examples=(True, False),
    ),
    Option(
        name="graph_capture_record_stream_reuse",
        kind=Kind.FLAG,
        default=False,
        summary=Words(
            "Lets memory that was used on several streams be reused inside a CUDA graph capture.",
            "يتيح داخل التقاط CUDA graph إعادة استعمال ذاكرة استُعملت على عدة مجارٍ.",
        ),
        use=Words(
            "It saves memory in graphs that use several streams; without captures it does nothing.",
            "يوفّر الذاكرة في الرسوم ذات المجاري المتعددة؛ ولا أثر له بغير التقاط.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.8.0",
        since=(2, 9),
        setting_key="graph_capture_record_stream_reuse",
        examples=(True, False),
    ),
    Option(
        name="pinned_use_cuda_host_register",
        kind=Kind.FLAG,
        default=False,
        summary=Words(
            "Pins host memory with cudaHostRegister instead of cudaHostAlloc.",
            "يثبّت ذاكرة المضيف بالدالة cudaHostRegister بدل cudaHostAlloc.",
        ),
        use=Words(
            "It can be faster where much host memory is pinned at once.",
            "قد يكون أسرع حيث تُثبَّت ذاكرة كثيرة دفعة واحدة.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.1.2, from 2.2.0 on",
        since=(2, 2),
        setting_key="pinned_use_cuda_host_register",
        aliases=("pinned_use_hip_host_register",),
        examples=(True, False),
    ),
    Option(
        name="pinned_num_register_threads",
        kind=Kind.COUNT,
        default=1,
        summary=Words(
            "How many threads pin host memory; a power of two.",
            "عدد الخيوط التي تثبّت ذاكرة المضيف؛ وهو قوة للعدد اثنين.",
        ),
        use=Words(
            "It only matters together with pinned_use_cuda_host_register.",
            "لا أثر له إلا مع pinned_use_cuda_host_register.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.1.2, from 2.2.0 on",
        since=(2, 2),
        ranges=(Range(low=1, high=128),),
        needs="pinned_use_cuda_host_register",
        setting_key="pinned_num_register_threads",
        examples=(1, 8, 16),
    ),
    Option(
        name="pinned_use_background_threads",
        kind=Kind.FLAG,
        default=False,
        summary=Words(
            "Frees pinned host memory on background threads.",
            "يحرّر ذاكرة المضيف المثبّتة في خيوط خلفية.",
        ),
        use=Words(
            "It keeps the thread that loads data from waiting for events.",
            "يعفي الخيط الذي يحمّل البيانات من انتظار الأحداث.",
        ),
        source="run: 2.9.1, 2.11.0, 2.14.1; binaries: not yet in 2.5.1, from 2.6.0 on",
        since=(2, 6),
        change=Change.BEFORE_CUDA,
        shared=True,
        examples=(True, False),
    ),
    Option(
        name="pinned_reserve_segment_size_mb",
        kind=Kind.MIB,
        default=0,
        summary=Words(
            "Host memory pinned once, at the start, to serve small pinned requests from.",
            "ذاكرة مضيف تُثبَّت مرة واحدة في البداية لتُخدَم منها الطلبات المثبّتة الصغيرة.",
        ),
        use=Words(
            "It makes the first pinned allocations quick, at the price of that much host memory.",
            "يجعل التثبيتات الأولى سريعة، وثمنه ذلك القدر من ذاكرة المضيف.",
        ),
        source="run: 2.11.0, 2.14.1, refused by 2.9.1; binaries: from 2.10.0 on",
        since=(2, 10),
        change=Change.BEFORE_CUDA,
        ranges=(Range(low=1),),
        examples=(256, 1024),
    ),
    Option(
        name="pinned_free_catch_all",
        kind=Kind.FLAG,
        default=False,
        summary=Words(
            "Swallows errors when pinned host memory is freed late.",
            "يبتلع الأخطاء حين تُحرَّر الذاكرة المثبّتة متأخرة.",
        ),
        use=Words(
            "It is for processes that end while pinned memory is still in use.",
            "هو لعمليات تنتهي وذاكرتها المثبّتة ما زالت مستعملة.",
        ),
        source="run: 2.14.1, refused by 2.11.0; binaries: from 2.12.0 on",
        since=(2, 12),
        examples=(True, False),
    ),
    Option(
        name="pinned_max_round_threshold_mb",
        kind=Kind.MIB,
        default=UNLIMITED,
        summary=Words(
            "Pinned requests above this size are not rounded up.",
            "الطلبات المثبّتة الأكبر من هذا الحجم لا تُقرَّب إلى أعلى.",
        ),
        use=Words(
            "It saves host memory when large batches are pinned.",
            "يوفّر ذاكرة المضيف حين تُثبَّت دفعات كبيرة.",
        ),
        source="run: 2.14.1; binaries: not yet in 2.12.0, from 2.13.0 on",
        since=(2, 13),
        setting_key="max_round_threshold",
        shared=True,
        examples=(64, 256, UNLIMITED),
    ),
    Option(
        name="pinned_max_cached_size_mb",
        kind=Kind.MIB,
        default=UNLIMITED,
        summary=Words(
            "Pinned blocks above this size are given back instead of cached.",
            "الكتل المثبّتة الأكبر من هذا الحجم تُعاد بدل أن تُخبّأ.",
        ),
        use=Words(
            "It keeps a few large batches from holding host memory for good.",
            "يمنع دفعات كبيرة قليلة من الاحتفاظ بذاكرة المضيف إلى الأبد.",
        ),
        source="run: 2.14.1; binaries: not yet in 2.12.0, from 2.13.0 on",
        since=(2, 13),
        setting_key="max_cached_size",
        shared=True,
        examples=(256, 1024, UNLIMITED),
    ),
)

OPTIONS: Final[dict[str, Option]] = {option.name: option for option in _TABLE}


def known_to(torch: Release) -> list[Option]:
    """Return the options that release's parser takes, in the order of the table."""
    return [option for option in _TABLE if option.known_to(torch)]
