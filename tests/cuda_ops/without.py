"""Kernels of ops/cuda of which each barrier, wait, bound and place of a fragment can be left out when they run: flash_without.py,
conv_without.py. The tests have to find each of them.

What stands for a rule has to be there, once: a change of the kernels changes their list.
"""
import pathlib, re, sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def pattern(text):
    return r"\s*".join(re.escape(word) for word in re.findall(r"\w+|\S", text))


def once(text, what, old, new):
    text, found = re.subn(pattern(old), lambda _: new, text)
    if found != 1:
        sys.exit(f"{sys.argv[0]}: what stands for \"{what}\" is there {found} times, not once: {old}")
    return text


def write(out, name, parts, rules, less, interface):
    """`rules`: the rule, what stands for it, and what stands there when it is left out (OUT). `less`: pairs of what is replaced, so
    that fewer kernels have to be compiled. `interface`: the functions that tests call."""
    text = ""
    for part in parts:
        code = (ROOT / "ops/cuda" / part).read_text()
        own = "|".join(re.escape(f'#include "ops/cuda/{p}"') for p in parts)
        code = re.sub(rf"^(?:#pragma once|{own})$", "", code, flags=re.M)
        text += re.sub(r"//.*", "", code)
    text = re.sub(r"\bnamespace troupe::ops::on_cuda \{", "namespace troupe::ops::on_cuda::with_switches {", text)
    for number, (rule, old, new) in enumerate(rules):
        text = once(text, rule, old, new.replace("OUT", f"is_out({number})"))
    for old, new in less:
        text = once(text, "what need not be compiled", old, new)
    names = "".join(f'    "{rule[0]}",\n' for rule in rules)
    pathlib.Path(out).write_text(f"""#include "tests/cuda_ops/{name.lower()}_with_switches.h"

namespace troupe::ops::on_cuda::with_switches {{
namespace {{
size_t {name.lower()}_left_out = SIZE_MAX;
bool is_out(size_t rule) {{ return rule == {name.lower()}_left_out; }}
}}
}}
{text}
namespace troupe::testing {{
const std::vector<std::string> k{name}Rules{{
{names}}};
void leave_out_of_{name.lower()}(size_t rule) {{ ops::on_cuda::with_switches::{name.lower()}_left_out = rule; }}
{interface}
}}  // namespace troupe::testing
""")
