"""``python -m sdcpd``: the same as the command ``sdcpd``."""

import sys

from .cli import main

sys.exit(main())
