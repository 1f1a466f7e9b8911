#!/usr/bin/env python3
"""Installs the build to a folder of its own, moves that, and uses it as other projects do: the starter and the projects beside
this file, compiled once and linked with the shared and with the static library, by the build's compiler; the starter by another
compiler and by pkg-config, too. Each prints the same alone and as three processes.

    check.py BUILD SOURCE COMPILER [OTHER COMPILER]
"""
import os, pathlib, re, shutil, subprocess, sys, tempfile

build, source, compiler, other = (sys.argv + [""])[1:5]
here = pathlib.Path(__file__).parent
environment = {k: v for k, v in os.environ.items() if k not in ("CXX", "CC", "CXXFLAGS", "LDFLAGS", "CMAKE_PREFIX_PATH")}


def run(*command, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    done = subprocess.run([str(c) for c in command], text=True, env=environment, **options)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def made(project, prefix, cxx, folder):
    """The project's build folder."""
    said = run("cmake", "-G", "Ninja", "-S", project, "-B", folder, f"-DCMAKE_CXX_COMPILER={cxx}", f"-DCMAKE_PREFIX_PATH={prefix}",
               stderr=subprocess.STDOUT)
    # It gives no build type, and may have a compiler that miscompiles coroutines.
    if "it is Release" not in said or "-O3" not in (pathlib.Path(folder) / "build.ninja").read_text():
        sys.exit(f"{project}: the build type was not Release by default\n{said}")
    wrong = "TROUPE_COROUTINES:INTERNAL=0" in (pathlib.Path(folder) / "CMakeCache.txt").read_text()
    if wrong != ("miscompiles coroutines" in said):
        sys.exit(f"{project} with {cxx}: what find_package(Troupe) said of coroutines is not what was found\n{said}")
    run("cmake", "--build", folder)
    return folder


def same_alone_and_apart(prefix, program, kind):
    needs = "libtroupe.so" in run("ldd", program)
    if needs != (kind == "shared"):
        sys.exit(f"{program} is linked with the {'shared' if needs else 'static'} library, expected the {kind} one")
    alone, apart = run(program), run(prefix / "bin/troupe", "run", "-n", "3", program)
    if not alone or alone != apart:
        sys.exit(f"{program} prints alone\n{alone}\nand as three processes\n{apart}")
    print(program.name, "with", kind, "library: ok")


def simulated_finds(program):
    """A planted bug, and the same one again by the line that the program prints."""
    said = run(program)
    line = re.search(r"again: TROUPE_SIMULATED='(once \d+[^']*)'", said)
    if not said.startswith("1 fault: ") or "counted 2 times" not in said or not line:
        sys.exit(f"{program} printed\n{said}\nexpected one fault, by which something is counted 2 times")
    environment["TROUPE_SIMULATED"] = line[1]
    again = run(program)
    del environment["TROUPE_SIMULATED"]
    if "counted 2 times" not in again:
        sys.exit(f"{program} with {line[0]} printed\n{again}")
    print(program.name, "finds its bug: ok")


with tempfile.TemporaryDirectory(prefix="troupe-install-") as folder:
    root = pathlib.Path(folder)
    prefix = root / "troupe"
    for kind in ("shared", "static"):  # at one place, one after the other: programs are compiled once and linked twice
        first = root / "before the move" / kind
        for component in ("common", kind):
            run("cmake", "--install", build, "--prefix", first, "--component", component)
        shutil.rmtree(prefix, ignore_errors=True)
        shutil.move(first, prefix)
        same_alone_and_apart(prefix, made(pathlib.Path(source) / "examples/starter", prefix, compiler, root / "starter") / "starter", kind)
        built = made(here / "projects", prefix, compiler, root / "projects")
        for program in ("experts", "mixed", "own_function", "quickstart"):
            same_alone_and_apart(prefix, built / program, kind)
        simulated_finds(built / "simulated")
    if other and shutil.which(other):
        same_alone_and_apart(prefix, made(pathlib.Path(source) / "examples/starter", prefix, other, root / "other") / "starter", "static")
    if shutil.which("pkg-config"):
        environment["PKG_CONFIG_PATH"] = str(prefix / "lib/pkgconfig")
        flags = run("pkg-config", "--cflags", "--libs", "--static", "troupe").split()
        run(compiler, pathlib.Path(source) / "examples/starter/main.cpp", "-O0", *flags, "-o", root / "by-pkg-config")
        same_alone_and_apart(prefix, root / "by-pkg-config", "static")
    # What lies on a user's include path: one name, and no vendor's header behind it.
    names = sorted(p.name for p in (prefix / "include").iterdir())
    if names != ["troupe"]:
        sys.exit(f"the include folder holds {names}, expected troupe alone")
    for header in (prefix / "include").rglob("*.h"):
        for line in re.findall(r"#\s*include\s*(.*)", header.read_text()):
            if re.match(r'"(?!troupe/)|<(caf|capnp|kj|dnnl|oneapi|fmt|spdlog|CLI|nlohmann)', line):
                sys.exit(f"{header}: #include {line}")
    # Examples are compiled against the same headers in the build: each names only what is here.
    for example in sorted((pathlib.Path(source) / "examples").rglob("*.cpp")):
        for line in re.findall(r"#\s*include\s*(.*)", example.read_text()):
            if not re.match(r"<(?!troupe/)[\w/.]+>", line) and not (prefix / "include" / line.strip("<>")).is_file():
                sys.exit(f"{example}: #include {line}, which an installed tree does not have")
print("install: all projects were built and gave the same alone and as three processes")
