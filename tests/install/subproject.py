#!/usr/bin/env python3
"""Builds the starter with the checkout as a part of it (add_subdirectory), and runs it alone and as three processes.

    subproject.py SOURCE C_COMPILER CXX_COMPILER

The library is compiled for it, which takes minutes unless a compiler cache has it: so its folder has a name that stays, as
deep below the checkout as that of `./dev build`, and without ccache the test is skipped, saying so.
"""
import os, pathlib, shutil, subprocess, sys, tempfile

source, c_compiler, compiler = pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:4]
environment = {k: v for k, v in os.environ.items() if k not in ("CXX", "CC", "CXXFLAGS", "LDFLAGS", "CMAKE_PREFIX_PATH")}
if not shutil.which("ccache"):
    print("test-skipped: without ccache the library would be compiled once more, for minutes")
    sys.exit(0)


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout


folder = source / "build/subproject"
shutil.rmtree(folder, ignore_errors=True)
with tempfile.TemporaryDirectory(prefix="troupe-starter-") as project:
    shutil.copy(source / "examples/starter/main.cpp", project)
    (pathlib.Path(project) / "CMakeLists.txt").write_text(f"""cmake_minimum_required(VERSION 3.25)
project(starter LANGUAGES CXX)
add_subdirectory({source} troupe)
add_executable(starter main.cpp)
target_link_libraries(starter PRIVATE Troupe::troupe)
""")
    # Both compilers: another vendor's for C would change how CMake precompiles headers, and the cache would serve nothing.
    run("cmake", "-G", "Ninja", "-S", project, "-B", folder, f"-DCMAKE_C_COMPILER={c_compiler}", f"-DCMAKE_CXX_COMPILER={compiler}")
    if "CXX_COMPILER__starter_Release" not in (folder / "build.ninja").read_text():
        sys.exit("the starter's build type is not Release by default")
    run("cmake", "--build", folder, "--target", "starter", "troupe_cli")
    starter = next(p for p in folder.rglob("starter") if os.access(p, os.X_OK) and p.is_file())
    command = next(p for p in folder.rglob("troupe") if os.access(p, os.X_OK) and p.is_file())
    alone, apart = run(starter), run(command, "run", "-n", "3", starter)
    if not alone or alone != apart:
        sys.exit(f"the starter prints alone\n{alone}\nand as three processes\n{apart}")
shutil.rmtree(folder)
print("subproject: the starter was built with the library as a part of it, and gave the same alone and as three processes")
