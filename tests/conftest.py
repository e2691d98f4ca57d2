"""What all tests share."""

from __future__ import annotations

pytest_plugins = ["tests.virtual_gpu.plugin"]
