"""``python -m service`` is the command ``seawall``."""

from __future__ import annotations

import sys

from service.cli import main

sys.exit(main())
