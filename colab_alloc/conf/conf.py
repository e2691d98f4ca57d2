"""AllocConf: a configuration as a value, and what a PyTorch release has against it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from colab_alloc.conf import grammar, objections, values
from colab_alloc.conf.options import OPTIONS, Value
from colab_alloc.conf.problem import AllocConfError, Problem


class AllocConf(Mapping[str, Value]):
    """An immutable mapping of option names to values; an option that is absent has PyTorch's default.

    Sizes are in MiB, as in the options' own names. `UNLIMITED` is the value of a size without a limit.

    >>> conf = AllocConf(max_split_size_mb=128) | {"garbage_collection_threshold": 0.8}
    >>> str(conf)
    'max_split_size_mb:128,garbage_collection_threshold:0.8'
    >>> AllocConf.parse(str(conf)) == conf
    True

    Raises:
        AllocConfError: a name that no PyTorch knows, or a value that is not of the option's kind.
    """

    __slots__ = ("_repairs", "_settings", "_text")

    def __init__(self, settings: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        checked: dict[str, Value] = {}
        for name, value in {**(settings or {}), **options}.items():
            try:
                understood = values.checked(name, value)
                checked[values.option_of(name, exactly=True).name] = understood
            except values.Unreadable as unreadable:
                text = f"{name}:{value}"
                problem = Problem("error", name, (0, len(text)), unreadable.message, unreadable.fix)
                raise AllocConfError(text, [problem]) from None
        self._settings = {name: checked[name] for name in OPTIONS if name in checked}
        self._text = str(self)
        self._repairs: tuple[Problem, ...] = ()

    @classmethod
    def parse(cls, text: str) -> AllocConf:
        """Read a text of the variable, also as people write it: what can mean one thing only is repaired.

        Repairs are in `problems()`. Of an option named twice the last value counts, as in PyTorch.

        Raises:
            AllocConfError: the text is not of the grammar, or names and values in it are not; all that is wrong is
                in its `problems`, with the places in the text.
            TypeError: it is no text.
        """
        if not isinstance(text, str):
            raise TypeError(f"the text of a configuration is a str, not {type(text).__name__}; AllocConf.of takes more")
        parsed = grammar.parse(text)
        settings: dict[str, Value] = {}
        repairs, errors = parsed.repairs, []
        for setting in parsed.settings:
            try:
                read = values.read(setting)
            except values.Unreadable as unreadable:
                name = setting.name.text
                errors.append(Problem("error", name, setting.span, unreadable.message, unreadable.fix))
                continue
            repairs += read.repairs
            if read.name in settings:
                message = f"{read.name} is named twice; the last value counts"
                repairs.append(Problem("warning", read.name, setting.span, message))
            settings[read.name] = read.value
        if errors:
            raise AllocConfError(text, errors)
        conf = cls(settings)
        conf._text, conf._repairs = text, tuple(repairs)
        return conf

    @classmethod
    def readable(cls, text: str) -> bool:
        """Say whether `parse` reads the text."""
        try:
            cls.parse(text)
        except AllocConfError:
            return False
        return True

    @classmethod
    def of(cls, settings: Mapping[str, Any] | str) -> AllocConf:
        """Return settings in whichever form they are given: a configuration, names with values, or a text.

        Raises:
            AllocConfError: as for `AllocConf(...)` and `AllocConf.parse`.
            TypeError: they are in none of these forms.
        """
        if isinstance(settings, cls):
            return settings
        if isinstance(settings, str):
            return cls.parse(settings)
        if isinstance(settings, Mapping):
            return cls(settings)
        what = type(settings).__name__
        raise TypeError(f"settings are an AllocConf, a dict or a text like 'max_split_size_mb:128', not {what}")

    def problems(
        self,
        torch: str | None = None,
        platform: str | None = None,
        capacity: int | None = None,
        *,
        limited: bool = False,
        lang: str = "en",
    ) -> list[Problem]:
        """Return what is wrong with this configuration, errors first, with places in the text it was read from.

        Args:
            torch: a PyTorch version like "2.11"; the installed one when None, else the newest known.
            platform: as in sys.platform; this machine's when None.
            capacity: the memory of the GPU, bytes; nothing is said about it when None.
            limited: whether a limit of this process's memory is in force already.
            lang: the language of what is said of the settings, "en" or "ar"; repairs of the text are told in English.
        """
        places = {}
        for setting in grammar.parse(self._text).settings:
            places[values.option_of(setting.name.text).name] = setting.span
        found = objections.to(self, objections.Surroundings.of(torch, platform, capacity, limited))
        placed = [
            Problem(
                severity=objection.severity,
                option=objection.option,
                span=places[objection.option],
                message=objection.message.in_(lang),
                fix=objection.fix,
            )
            for objection in found
        ]
        rank = ("error", "warning", "repair")
        return sorted([*placed, *self._repairs], key=lambda problem: rank.index(problem.severity))

    @property
    def repairs(self) -> tuple[Problem, ...]:
        """What was put right, or was odd, in the text it was read from."""
        return self._repairs

    def for_torch(self) -> str:
        """Return the text to give to PyTorch: as `str`, without the defaults that PyTorch has no word for."""
        return grammar.write(
            {
                name: value
                for name, value in self.items()
                if OPTIONS[name].default_can_be_written or not values.same(name, value, OPTIONS[name].default)
            }
        )

    def without(self, *names: str) -> AllocConf:
        """Return a configuration that lacks these options."""
        return AllocConf({name: value for name, value in self.items() if name not in names})

    def only(self, *names: str) -> AllocConf:
        """Return a configuration of these options alone, as far as they are here."""
        return AllocConf({name: value for name, value in self.items() if name in names})

    def __or__(self, other: Mapping[str, Any]) -> AllocConf:
        return AllocConf({**self, **other})

    def __getitem__(self, name: str) -> Value:
        return self._settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._settings)

    def __len__(self) -> int:
        return len(self._settings)

    def __hash__(self) -> int:
        return hash(tuple(self._settings.items()))

    def __str__(self) -> str:
        return grammar.write(self._settings)

    def __repr__(self) -> str:
        return "AllocConf(" + ", ".join(f"{name}={value!r}" for name, value in self.items()) + ")"
