#!/usr/bin/env python3
"""Tests of check_layers on small trees. Run: tools/check_layers_test.py"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parent / "check_layers"
ROOMS = """
# moesaic_room(ghost DEPS cli)   a comment is no declaration
moesaic_room(base LIBS fmt::fmt)
moesaic_room(mesh DEPS base)
moesaic_room(comm DEPS mesh
             LIBS pthread EXCLUDE base)
"""


class CheckLayers(unittest.TestCase):
    def run_tool(self, files, rooms=ROOMS):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {"src/CMakeLists.txt": rooms, **files}.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            done = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout + done.stderr

    def accepts(self, files, rooms=ROOMS):
        self.assertEqual(self.run_tool(files, rooms), (0, ""))

    def refuses(self, message, files, rooms=ROOMS, code=1):
        found, output = self.run_tool(files, rooms)
        self.assertIn(message, output)
        self.assertEqual(found, code)

    def test_a_room_may_include_itself_its_deps_and_the_outside(self):
        self.accepts({"src/mesh/a.cpp": '#include <vector>\n#include <mpi.h>\n#include "base/b.h"\n#include "mesh/a.h"\n',
                      "src/comm/tcp/a.cpp": '#include "mesh/a.h"\n',
                      "src/cli/main.cpp": '#include "comm/a.h"\n#include "base/b.h"\n'})

    def test_a_room_below_is_refused(self):
        self.refuses("src/base/a.h:2: room base includes mesh/m.h, but its DEPS are: no other room",
                     {"src/base/a.h": '#pragma once\n#include "mesh/m.h"\n'})
        self.refuses("room mesh includes cli/x.h", {"src/mesh/a.cpp": '# include <cli/x.h>\n'})

    def test_a_dependency_does_not_pass_on_its_own(self):
        self.refuses("room comm includes base/b.h, but its DEPS are: mesh", {"src/comm/a.cpp": '#include "base/b.h"\n'})

    def test_deps_name_rooms_above(self):
        self.refuses("src/CMakeLists.txt:1: room a depends on b, which is not declared above it", {},
                     "moesaic_room(a DEPS b)\nmoesaic_room(b)\n")
        self.refuses("depends on bass, which is not a room", {}, "moesaic_room(base)\nmoesaic_room(a DEPS bass)\n")

    def test_a_folder_that_is_no_room_is_refused(self):
        self.refuses("utils is not a room", {"src/utils/a.cpp": ""})

    def test_relative_includes_are_refused(self):
        self.refuses('name headers from src/', {"src/mesh/a.cpp": '#include "../base/b.h"\n'})

    def test_conditions_on_backends_are_refused(self):
        for line in ("#ifdef MOESAIC_CUDA", "#if defined(USE_MPI)", "  # ifndef HAVE_NCCL", "#elif MOESAIC_ONEDNN",
                     "#if __has_include(<mpi.h>)", "#ifdef __CUDACC__", "#if DNNL_VERSION > 2"):
            self.refuses("src/base/a.cpp:1: a condition on", {"src/base/a.cpp": line + "\n#endif\n"})
        self.refuses("a condition on NCCL", {"src/base/a.cu": "#ifdef HAVE_NCCL\n#endif\n"})

    def test_other_conditions_are_accepted(self):
        self.accepts({"src/base/a.cpp": "#ifdef COMPILER\n#endif\n#if SIMPLE\n#endif\n// #ifdef MPI\n",
                      "src/base/a.cu": "#if __CUDA_ARCH__ >= 900\n#endif\n"})

    def test_headers_need_pragma_once(self):
        self.refuses("src/base/a.h:1: no #pragma once", {"src/base/a.h": "// #pragma once\n"})

    def test_rooms_that_cannot_be_read_are_an_error(self):
        self.refuses("no moesaic_room() found", {}, "add_library(x)\n", code=2)
        self.refuses("declared twice", {}, "moesaic_room(a)\nmoesaic_room(a)\n", code=2)


if __name__ == "__main__":
    unittest.main()
