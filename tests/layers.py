#!/usr/bin/env python3
"""Checks that every file includes only its own layer and those that CMakeLists.txt allows, that vendor headers stay in
their homes and out of our headers, that no file is a pile, that members that give references say what temporaries give, that nothing
depends on the locale or hangs children of fork(), that a header holds something of its name, and that a class lies in at most two .cpp files. (docs_names.py knows whether paths in comments exist.)

    layers.py [ROOT]       prints violations as file:line; exit code 1 if there are any
    layers.py --self-test  plants one violation of each kind and checks that it is found
"""
import pathlib, re, sys, tempfile

LONGEST = 500
CODE = {".h", ".cpp", ".cu", ".cuh"}
COUNTED = CODE | {".py", ".cmake", ".capnp"}
FREE = ("examples", "bench", "tests")  # may include every layer
SYSTEM = ("sys/", "linux/", "netinet/", "arpa/", "net/", "asm/", "bits/")

# Header (regular expression) and the places, as regular expressions on the path, that may include it.
VENDOR = [
    (r"caf/", [r"actors/"]),
    (r"sanitizer/", [r"actors/runtime/runtime\.cpp"]),
    (r"(capnp|kj)/", [r"net/"]),
    (r"openssl/", [r"net/"]),
    (r"(oneapi/)?dnnl", [r"ops/cpu/"]),
    (r"(cuda|cublas|cudnn|curand|cuda_|cub)\w*[./]", [r"(.*/)?(sim_)?cuda/"]),
    (r"nccl", [r"collective/nccl/", r"(support/)?sim_cuda/"]),
    (r"ucp/|ucs/", [r"net/ucx/"]),
    (r"microhttpd\.h", [r"tools/dashboard/"]),
    (r"nanobind/|Python\.h", [r"python/"]),
    (r"unicode/", [r"llm/text_pieces\.cpp"]),
    (r"zlib\.h", [r"data/", r"tests/data/"]),
    (r"archive(_entry)?\.h", [r"data/formats/"]),
    (r"png\.h|jpeglib\.h|jerror\.h", [r"data/formats/"]),
    (r"CLI/", [r"tools/", r"examples/", r"bench/"]),
    (r"spdlog/", [r"core/base/log\.cpp"]),
    (r"nlohmann/", [r"tools/", r"tests/", r"bench/", r"data/", r"examples/", r"troupe/watch/", r"llm/"]),
    (r"catch2/|rapidcheck", [r"tests/"]),
    (r"benchmark/", [r"bench/"]),
    (r"lua|histedit\.h|editline/", [r"tools/"]),
    (r"fmt/", [r""]),
    (r"troupe/", [r"examples/", r"tests/install/", r"tests/docs_prelude\.h"]),  # as an installed library's users write
]
# What programs make on the spot. A member function there that gives a const reference is `const&`, and says beside it what a
# temporary gives: a value, or `= delete` with the way out; `for (auto r : loader.epoch(0).order())` must not read freed memory.
VALUES = re.compile(r"(core/(async|base|tensor|value)|ops/dispatch|autograd|nn|optim|data|rref|parallel/(data|server)|troupe|tools/flags)/[^/]+\.h")
REFERENCE = re.compile(r"\s+const [\w:<>, ]+& (\w+)\([^()]*\) const\s*(?:noexcept\s*)?[{;]")
# Of what others own, or private, or of a container (as std), or in classes of which there are no temporaries.
ELSEWHERE = {
    "ops/dispatch/op.h": {"shape"}, "ops/dispatch/attrs.h": {"find"}, "core/tensor/tensor_methods.h": {"self"}, "data/formats/safetensors.h": {"find"},
    "rref/any_ref.h": {"checked_as"}, "rref/handle.h": {"id", "path", "type"}, "rref/here.h": {"name"}, "rref/name_table.h": {"all"},
    "parallel/server/server_base.h": {"consistency"}, "core/base/small_vector.h": {"back"},
}
# What the locale of a program changes: "0.5" read as 0, printed as 0,5; letters. Numbers are read by std::from_chars and
# number_in(), and printed by fmt; core/base/ascii.h knows letters.
LOCALE = re.compile(r"\b(strto(?:d|f|ld)|sto(?:d|f|ld)|atof|[vfs]*scanf|is(?:alpha|alnum|digit|space|upper|lower|print|punct|cntrl|graph|xdigit)"
                    r"|to(?:upper|lower)|setlocale|localeconv|strftime|put_time|imbue)\s*\(|printf\(.*%[-+ #0-9.*]*[aefgAEFG]")
LOCALE_OF_TERMINAL = "tools/repl/terminal/prompt.cpp"  # what libedit edits is in its encoding
# A child of fork() that waits for one of these would hang, where another thread of its parent held it: Mutex and RecursiveMutex end it.
MUTEX = re.compile(r"\bstd::(?:recursive_|timed_|recursive_timed_|shared_|shared_timed_)?mutex\b|\bpthread_(?:mutex|rwlock)_t\b")
MUTEX_HOMES = ("core/base/mutex.h", "core/base/fork.h", "core/base/fork.cpp")
# How a header names what it declares; a word of the header's name has to be among them.
NAMES = (re.compile(r"^\s*(?:class|struct|union|enum(?: class)?|concept|namespace)\s+(?:\[\[\w+\]\]\s*|TROUPE_\w+(?:\(\))? )?(?:\w+::)*(\w+)", re.M),
         re.compile(r"\busing\s+(\w+)\s*="), re.compile(r"#define (\w+)"), re.compile(r"\b(k[A-Z]\w*)\s*[{=\[;]"),
         re.compile(r"[\w>&*\]]\s+[*&]*(?:\w+::)*(\w+)\s*\("))
# Headers that hold nothing of their name, and why.
UNNAMED = {
    r"troupe/(calls|claim|data|profile|gradients|groups|layout|operators|pipeline|pool|replicas|server|tensor_parallel|context_parallel|experts|llm|onnx|plan|simulated)\.h|(autograd/autograd|nn/nn|ops/ops|optim/optim)\.h|ops/operators\.h":
        "what programs include for a subject",
    r"ops/(dispatch/(anomaly|check|geometry|recorded)|[a-z_]+)\.h": "families of operators, and what they share",
    r"ops/cpu/(gradient_sizes|loops/[a-z_]+|lapack/factorizations)\.h": "loops, by what they walk; what LAPACK does",
    r"nn/(activation|rnn)\.h": "families of modules",
    r"core/tensor/(creation|half)\.h|core/base/ascii\.h|core/async/future_combinators\.h": "families of functions or types",
    r"core/base/(compiler|fork)\.h|core/cuda/runtime\.h|tools/repl/lua/lua\.h": "about what others made: the compiler, fork(), the CUDA runtime, Lua",
    r"autograd/(engine|once_differentiable)\.h|optim/gradient_norm\.h|parallel/tensor/convert\.h": "functions of one mechanism",
    r"net/wire/wire(_rules)?\.h": "the packets themselves, and their bits",
    r"parallel/pipeline/stage/stage_(method|work)\.h|script/parallel\.h": "functions around a subject of another header",
    r"data/datasets/sampler\.h": "the field's word for what Order is",
    r"actors/worker/late_messages\.h": "declarations of messages",
    r"tools/(launch/output|program)\.h": "a job's output; what every command's main() needs",
}
# A definition of a member, and the classes whose members lie in more .cpp files of a layer than two, and why.
MEMBER = re.compile(r"^(?!using|namespace|template class|return|static_assert|extern|typedef)[^\s;={}#][^\n;={}#]*?\b([A-Z]\w*)(?:<[^<>\n]*>)?::"
                    r"(?:[A-Z]\w*(?:<[^<>\n]*>)?::)*(?:~?\w+|operator[^\s(]+)\s*\(|^([A-Z]\w*)::(?:[A-Z]\w*::)*~?\w+\s*\(", re.M)
CLASS_FILES = 2
CUT = {
    "Tensor": "methods lie by subject, so that core needs no operators",
    "Worker": "the way of a call: out, in, and what it is doing; not yet classes of their own",
    "RefTable": "owned and held references, names and stored results have one lock; not yet classes of their own",
    "SocketConnection": "socket, ring and polling share one state; not yet classes of their own",
}
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')


def layers(cmake):
    """{folder: set of folders that it may include}, from the troupe_layer() lines."""
    table = {}
    for folder, rest in re.findall(r"^\s*troupe_layer\((\S+)([^)]*)\)", cmake, re.M):
        uses = re.search(r"\bUSES((?:\s+[a-z][a-z/]*)*)", rest)
        table[folder] = {folder, *(uses.group(1).split() if uses else ())}
    table["python"] = {"python", *table}  # a module of Python, which no layer includes
    return table


def layer_of(path, table):
    """The longest folder of the table that holds the path, or its first folder."""
    held = [folder for folder in table if path.startswith(folder + "/")]
    return max(held, key=len) if held else path.split("/")[0]


def wrong_include(path, kind, header, table):
    """What is wrong with one include; empty if nothing is."""
    top = path.split("/")[0]
    generated = header == "net/wire/wire.capnp.h"
    vendor = next((homes for name, homes in VENDOR if re.match(name, header)), None) if kind == "<" else None
    if vendor is not None:
        if top == "tests" and "catch2" not in header and any(re.match(h, path[6:]) for h in vendor):
            return ""  # tests of a home may use its vendor
        if not any(re.match(home, path) for home in vendor):
            return f"<{header}> belongs to {', '.join(vendor)}".replace("\\", "")
        # Nobody includes what is there but the command, and units that may have the vendor's headers, too.
        inside = path.startswith(("tools/repl/", "python/")) or "/cuda/" in path
        return f"<{header}> in a header; vendor headers stay in .cpp files" if path.endswith(".h") and top != "tests" and not inside else ""
    if kind == "<":
        if "/" in header and not header.startswith(SYSTEM):
            return f"<{header}> is in no table; add it to VENDOR in tests/layers.py, with its home"
        return ""
    if generated:
        return "" if top in ("net", "tests") and path.endswith(".cpp") else "net/wire/wire.capnp.h belongs to .cpp files of net/"
    if "/" not in header:
        return f'"{header}" is no path from the repository root'
    mine, other = layer_of(path, table), layer_of(header, table)
    if mine in FREE or path == mine + "/main.cpp":  # a program, which no library has
        return ""
    if other not in table.get(mine, ()):
        return f'{mine} may not include "{header}" ({other}); it may include: {", ".join(sorted(table.get(mine, ())))}'
    return ""


def circles(arrows):
    """Folders of one layer that include each other, directly or through others; arrows: {folder: {folder: (place, header)}}."""
    def reached(start):
        seen, open_ = set(), [start]
        while open_:
            for other in arrows.get(open_.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    open_.append(other)
        return seen
    far = {folder: reached(folder) for folder in arrows}
    for folder, others in arrows.items():
        for other, (place, header) in others.items():
            if folder in far.get(other, ()):
                yield f'{place}: {folder} may not include "{header}": {other} includes {folder}'


def stem(word):
    """Without the ending of a plural or of a form of a verb."""
    for ending in ("ies", "ing", "ers", "er", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[:-len(ending)]
    return word


def holds_its_name(header, text):
    """Whether something that a header declares has a word of the header's name."""
    text = re.sub(r'//[^\n]*|"[^"\n]*"|#include.*', "", text)
    names = [name.lower().replace("_", "") for pattern in NAMES for name in pattern.findall(text)]
    return any(stem(word) in name for word in header.split("_") for name in names)


def members(text):
    """The classes of which a .cpp file defines members, outermost first."""
    text = re.sub(r'//[^\n]*|"(?:[^"\\\n]|\\.)*"', "", text)
    return {first or second for first, second in MEMBER.findall(text)}


def files(root):
    """All but what builds make (which may hold whole systems) and hidden folders."""
    for entry in root.iterdir():
        if entry.name == "build" or entry.name.startswith("."):
            continue
        yield from entry.rglob("*") if entry.is_dir() else (entry,)


def unnamed_folders(page, folders):
    """Folders of the library that the page's list of folders within layers does not name."""
    block = re.search(r"^```text\n(core/.*?)^```", page, re.M | re.S)
    texts, tops = {}, []
    for line in (block[1] if block else "").splitlines():
        if not line.startswith(" "):
            tops = re.findall(r"([a-z]+)/(?=[ a-z(])", line.split("  ")[0] + " ")
        for top in tops:
            texts[top] = texts.get(top, "") + " " + line
    for folder in sorted(folders):
        top, _, below = folder.partition("/")
        words = set(re.findall(r"\w+", texts.get(top, "")))
        if (below and below.rpartition("/")[2] not in words and not below.endswith("cuda")) or top not in texts:
            yield f"docs/explanation/architecture.md:1: the list of folders within layers does not name {folder}"


def violations(root):
    table = layers((root / "CMakeLists.txt").read_text())
    found, arrows, homes = [], {}, {}
    for file in sorted(files(root)):
        path = file.relative_to(root).as_posix()
        if file.suffix not in COUNTED or not file.is_file():
            continue
        lines = file.read_text().splitlines()
        if len(lines) > LONGEST:
            found.append(f"{path}:{len(lines)}: {len(lines)} lines; a file has at most {LONGEST}")
        if file.suffix not in CODE or "/" not in path:
            continue
        if (file.suffix == ".h" and path.split("/")[0] not in FREE and not any(re.fullmatch(p, path) for p in UNNAMED)
                and not holds_its_name(file.stem, "\n".join(lines))):
            found.append(f"{path}:1: nothing here has the header's name, or a part of it: name it after what it holds, or say why in UNNAMED")
        for name in sorted(members("\n".join(lines)) - set(CUT) if file.suffix == ".cpp" and path.split("/")[0] not in FREE else ()):
            others = homes.setdefault((path.split("/")[0], name), [])
            if len(others) == CLASS_FILES:
                found.append(f"{path}:1: members of {name} are in {' and '.join(others)}, too: make it whole, or several classes, or say why in CUT")
            others.append(path)
        for number, line in enumerate(lines, 1):
            if VALUES.fullmatch(path) and (match := REFERENCE.match(line)) and match[1] not in ELSEWHERE.get(path, ()):
                found.append(f"{path}:{number}: {match[1]}() gives a reference into a temporary: write `const&`, and what `&&` gives")
            if path.split("/")[0] not in FREE and path != LOCALE_OF_TERMINAL and (match := LOCALE.search(line)):
                found.append(f"{path}:{number}: {match[0].rstrip('( ')} depends on the locale; use std::from_chars, fmt or core/base/ascii.h")
            if path.split("/")[0] not in FREE and path not in MUTEX_HOMES and (match := MUTEX.search(line.partition("//")[0])):
                found.append(f"{path}:{number}: {match[0]} hangs children of fork(); use Mutex or RecursiveMutex of core/base/mutex.h")
            if match := INCLUDE.match(line):
                kind, header = match.groups()
                if wrong := wrong_include(path, kind, header, table):
                    found.append(f"{path}:{number}: {wrong}")
                mine, other = path.rpartition("/")[0], header.rpartition("/")[0]
                if kind == '"' and mine != other and layer_of(path, table) == layer_of(header, table) not in FREE:
                    arrows.setdefault(mine, {}).setdefault(other, (f"{path}:{number}", header))
    page = root / "docs/explanation/architecture.md"
    folders = {file.parent.relative_to(root).as_posix() for file in files(root) if file.suffix in (".h", ".cpp")}
    library = {folder for folder in folders if layer_of(folder + "/", table) in table or folder.split("/")[0] in ("troupe", "script", "tools")}
    return found + list(circles(arrows)) + (list(unnamed_folders(page.read_text(), library)) if page.exists() else [])


CMAKE = """troupe_layer(core LINK fmt::fmt)
troupe_layer(ops USES core)
troupe_layer(net USES core LINK x)
troupe_layer(autograd USES core ops)
troupe_layer(autograd/distributed USES core ops net autograd
             LINK x)
"""
GOOD = {
    "ops/a.cpp": '#include "ops/a.h"\n#include "core/tensor/tensor.h"\n#include <fmt/format.h>\n#include <sys/stat.h>\n',
    "ops/cpu/a.cpp": "#include <oneapi/dnnl/dnnl.hpp>\n",
    "autograd/distributed/a.h": '#include "autograd/engine.h"\n#include "net/transport.h"\n#include <vector>\nstruct A {};\n',
    "net/wire/wire.cpp": '#include "net/wire/wire.capnp.h"\n#include <capnp/serialize.h>\n',
    "tests/net/a.cpp": '#include <catch2/catch.hpp>\n#include "autograd/distributed/a.h"\n',
    "core/base/log.cpp": "#include <spdlog/spdlog.h>\n",
    "nn/value.h": "class Value {\n  const Shape& shape() const& { return s; }\n  Shape shape() && { return s; }\n",
    "nn/named_values.h": "using namespace a;\nint value_of(const Name& name);\n",
    "nn/cut_a.cpp": "int Cut::a() { return 1; }\n",
    "nn/cut_b.cpp": "Cut::Cut() {}\nstd::vector<int> Cut::Part::b(int x) {\n  return Cut::a();\n}\n",
    "tests/nn/b.cpp": "  const double x = std::stod(line);\n",
}
BAD = {
    "core/up.cpp": '#include "ops/a.h"\n',
    "autograd/up.h": '\n#include "autograd/distributed/a.h"\nvoid up();\n',
    "net/side.h": '#include "ops/a.h"\nvoid side();\n',
    "ops/caf.cpp": "#include <caf/all.hpp>\n",
    "ops/dnn.cpp": "#include <dnnl.hpp>\n",
    "ops/gpu.cpp": "#include <cuda_runtime.h>\n",
    "ops/text.h": "#include <fmt/format.h>\n",
    "core/wire.cpp": '#include "net/wire/wire.capnp.h"\n',
    "core/test.cpp": "#include <catch2/catch.hpp>\n",
    "core/log2.cpp": "#include <spdlog/spdlog.h>\n",
    "core/new.cpp": "#include <unheard/of.h>\n",
    "core/near.cpp": '#include "tensor.h"\n',
    "core/pile.cpp": "\n" * 501,
    "nn/other.h": '// Others.\n#include "nn/value.h"\nclass Value {};\nint f(Other o);\n',
    "nn/temporary.h": "class Temporary {\n  const Shape& shape() const { return s; }\n",
    "nn/cut_c.cpp": "template <class T>\nconst Cut::Part& Cut::c() const {\n",
    "nn/locale.cpp": "  const double x = std::strtod(text, nullptr);\n",
    "nn/mutex.cpp": "  std::mutex mutex_;\n",
    "nn/comma.cpp": '  std::printf("%ld of %.2f", n, x);\n',
}


def self_test():
    for planted, expected in ((GOOD, set()), (GOOD | BAD, set(BAD))):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "CMakeLists.txt").write_text(CMAKE)
            for name, text in planted.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            found = {line.split(":")[0] for line in violations(root)}
            if found != expected:
                sys.exit(f"self-test: missed {sorted(expected - found)}, found in vain {sorted(found - expected)}")
    named = "```text\ncore/  base  errors\n       a/inner, b  others\nnn/ optim/   modules\n```\n"
    if len(list(unnamed_folders(named, {"core/base", "core/a/inner", "nn", "optim", "core/b/cuda"}))) or len(list(unnamed_folders(named, {"core/c", "data"}))) != 2:
        sys.exit("self-test: folders that the page names, or does not, were taken for the others")
    print(f"self-test: all {len(BAD)} planted violations were found, and nothing else")


if __name__ == "__main__":
    if sys.argv[1:] == ["--self-test"]:
        self_test()
    else:
        root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent)
        bad = violations(root)
        print(*bad, f"layers: {len(bad)} violation{'s' * (len(bad) != 1)}", sep="\n")
        sys.exit(bool(bad))
