"""`python -m graphrt`: the `graphrt` command."""

import sys

from graphrt.tools.main import main

sys.exit(main())
