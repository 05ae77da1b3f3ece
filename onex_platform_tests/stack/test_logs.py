"""A log is read from its end, goes on as it is written, and goes on over a restart."""

from __future__ import annotations

from itertools import islice

from onex_platform.base.settings import Settings
from onex_platform.stack.folders import ServerFolder, StackFolder
from onex_platform.stack.logs import read
from onex_platform_tests.support.own_stacks import NewStack


def kafka_folder(settings: Settings) -> ServerFolder:
    folder = StackFolder(settings).server("kafka")
    folder.path.mkdir(parents=True)
    return folder


def test_the_end_of_each_log_is_shown(new_stack: NewStack) -> None:
    folder = kafka_folder(new_stack())
    folder.log.write_text("one\ntwo\nthree\n")
    missing = folder.stack.server("postgres")
    shown = list(read([missing, folder], lines=2, follow=False))
    assert shown == [("kafka", "two"), ("kafka", "three")]
    assert list(read([folder], lines=0, follow=False)) == []


def test_following_gives_each_line_once_and_whole(new_stack: NewStack) -> None:
    folder = kafka_folder(new_stack())
    folder.log.write_text("old\n")
    lines = read([folder], lines=1, follow=True)
    assert next(lines) == ("kafka", "old")
    with folder.log.open("a") as log:
        log.write("half")
        log.flush()
        log.write(" and whole\nnext\n")
    assert list(islice(lines, 2)) == [("kafka", "half and whole"), ("kafka", "next")]


def test_following_goes_on_with_the_log_of_a_restarted_server(new_stack: NewStack) -> None:
    folder = kafka_folder(new_stack())
    folder.log.write_text("before\n")
    lines = read([folder], lines=1, follow=True)
    assert next(lines) == ("kafka", "before")
    folder.log.replace(folder.log.with_name("log.1"))
    folder.log.write_text("after\n")
    assert next(lines) == ("kafka", "after")
