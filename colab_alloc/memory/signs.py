"""What kind of trouble a reading shows, in words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from colab_alloc.language import Words
from colab_alloc.memory.history import Mark
from colab_alloc.memory.sample import MemorySample
from colab_alloc.units import percent, size

# From which share on a part is worth a sentence. Ours: PyTorch names no such thresholds.
_FRAGMENTED: Final = 0.2  # split, of what PyTorch holds
_WAITING: Final = 0.1  # of what PyTorch holds
_CACHED: Final = 0.3  # of what PyTorch holds, where it is much of the card, too
_CACHED_OF_CARD: Final = 0.1
_OTHER: Final = 0.25  # of the card
_FULL: Final = 0.95  # allocated, of the card


class Sign(NamedTuple):
    """One thing that a reading shows.

    Args:
        tone: "good", "wait" (worth knowing) or "bad" (needs attention).
        words: what it is, and what helps.
    """

    tone: str
    words: Words


def signs(sample: MemorySample, marks: Sequence[Mark] = ()) -> list[Sign]:
    """Return what kind of trouble there is on a GPU, the worst first; that there is none, where there is none.

    Args:
        sample: where the memory is.
        marks: what happened on the way.
    """
    found = [*_events(sample.device, marks), *_parts(sample)]
    return found or [
        Sign("good", Words("No sign of trouble: nothing much is stuck, waiting or idle", "لا علامة على مشكلة"))
    ]


def _events(device: int, marks: Sequence[Mark]) -> Iterator[Sign]:
    ooms = [mark.text for mark in marks if mark.kind == "oom" and mark.device == device]
    if len(ooms) > 1:
        many = Words("{count} out-of-memory errors, the last: {text}", "{count} من أخطاء نفاد الذاكرة، آخرها: {text}")
        yield Sign("bad", many.filled(count=len(ooms), text=ooms[-1]))
    elif ooms:
        one = Words("An out-of-memory error: {text}", "خطأ نفاد ذاكرة: {text}")
        yield Sign("bad", one.filled(text=ooms[-1]))
    if any(mark.kind == "retry" and mark.device == device for mark in marks):
        yield Sign(
            "wait",
            Words(
                "Allocations had to empty the cache first (retries): it is tight, and slow",
                "اضطرت تخصيصات إلى تفريغ المخبأ أولًا: المكان ضيّق والعمل بطيء",
            ),
        )


def _parts(sample: MemorySample) -> Iterator[Sign]:
    held = sample.reserved
    if sample.allocated >= _FULL * sample.capacity:
        yield Sign(
            "bad",
            Words(
                "Live tensors fill the card: no setting helps, use a smaller batch or model",
                "تملأ الموترات الحية البطاقة: لا ينفع أي إعداد، فاستعمل دفعة أو نموذجًا أصغر",
            ),
        )
    if sample.split is not None and held and sample.split >= _FRAGMENTED * held:
        yield Sign(
            "bad",
            Words(
                "Fragmentation: {size} ({share} of what PyTorch holds) is stuck in split blocks; "
                "expandable_segments:True or a max_split_size_mb keeps that down",
                "تجزّؤ: {size} ({share} مما يحوزه PyTorch) عالق في كتل مقسومة؛ "
                "يقلّله expandable_segments:True أو max_split_size_mb",
            ).filled(size=size(sample.split), share=percent(sample.split / held)),
        )
    if sample.waiting and sample.waiting >= _WAITING * held:
        yield Sign(
            "wait",
            Words(
                "{size} is freed, but work on another stream (record_stream) may still use it",
                "حُرّر {size}، لكن عملًا على تيار آخر (record_stream) قد يكون ما زال يستعمله",
            ).filled(size=size(sample.waiting)),
        )
    if held and sample.cached >= max(_CACHED * held, _CACHED_OF_CARD * sample.capacity):
        yield Sign(
            "wait",
            Words(
                "{size} is cached and unused: torch.cuda.empty_cache() gives it back",
                "{size} مخبّأ وغير مستعمل: يعيده torch.cuda.empty_cache()",
            ).filled(size=size(sample.cached)),
        )
    if sample.other is not None and sample.other >= _OTHER * sample.capacity:
        yield Sign(
            "bad",
            Words(
                "{size} of the card is taken by others: another notebook or process, or a library outside PyTorch",
                "{size} من البطاقة تشغله جهات أخرى: دفتر أو عملية أخرى، أو مكتبة خارج PyTorch",
            ).filled(size=size(sample.other)),
        )
