"""Copies the jars that Spark needs into the folder given; used while the image is built."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from onex_platform.base.settings import load_settings
from onex_platform.stack import spark_jars

target = Path(sys.argv[1])
target.mkdir(parents=True)
for jar in spark_jars(load_settings(), report=print):
    shutil.copy(jar, target)
