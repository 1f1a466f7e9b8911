#!/usr/bin/env python3
"""turns_without.py OUT.cpp: Turns (collective/turns), of which each rule can be left out when it runs.

The tests have to find each of them. What stands for a rule has to be there, once: a change of turns.cpp changes this list.
"""
import pathlib, re, sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The rule, what stands for it, and what stands there when it is left out (OUT); none: nothing.
RULES = [
    ("times that are final raise the clock", "clock_ = std::max(clock_, time);"),
    ("a proposal holds up what is behind it", "while (!queue_.empty()",
     "if (OUT) std::erase_if(queue_, [](const auto& q) { return !q.second; });\n  while (!queue_.empty()"),
    ("the largest proposal is the time", "time = std::max(time, proposal);",
     "time = OUT && time != 0 ? std::min(time, proposal) : std::max(time, proposal);"),
    ("an operation waits until all are ready", "if (led.proposals.size() < led.operation.members.size()) return;"),
    ("devices bring the same", "led.operation.brings != operation.brings || led.operation.members != operation.members)",
     "!OUT && (led.operation.brings != operation.brings || led.operation.members != operation.members))"),
    ("a leader that drops tells the members",
     "out.messages.emplace_back(device, TurnMessage{.kind = TurnMessage::drop, .operation = {.id = id}, .error = why});"),
    ("who hears of a drop answers", "out.messages.emplace_back(from, message_about(TurnMessage::dropped, id));"),
    ("what was dropped is not opened again by who gets ready", "if (!unheard_.contains(id)) lead(", "if (OUT || !unheard_.contains(id)) lead("),
    ("what was dropped is not opened again by who gives up", "&& !unheard_.contains(id)) {", "&& (OUT || !unheard_.contains(id))) {"),
    ("what has ended is not opened again by who gives up", "} else if (!m.was_ready &&", "} else if ((OUT || !m.was_ready) &&"),
    ("it is too late to give up what has a turn", "if (!led->second.has_turn) drop_everywhere", "if (OUT || !led->second.has_turn) drop_everywhere"),
    ("a drop before the call is kept for the call", "dropped_early_.insert_or_assign(id, Early{{.id = id, .leader = from}, *m.error});"),
    ("what is behind a dropped operation is launched", "led_.erase(id); launch(out);", "led_.erase(id); if (!OUT) launch(out);"),
    ("who sees a loss tells the members", "tell_failed(operation, error, out);"),
    ("who has left what gets a turn tells the members", "tell_failed(left->second,"),
    ("who leaves expects an answer", "left_[operation.id] = operation;"),
    ("what a lost worker takes part in is dropped", "led.push_back(l.operation);"),
    ("nobody waits for a lost worker's answer", "return d.worker == worker;", "return !OUT && d.worker == worker;"),
    ("a leader that is lost answers nobody", "return l.second.leader.worker == worker;", "return !OUT && l.second.leader.worker == worker;"),
    ("nobody gets ready for what a lost worker takes part in", "why_lost(operation)) return stay_away(", "why_lost(operation); why && !OUT) return stay_away("),
    ("a leader drops what a lost worker takes part in when others get ready", "why_lost(led.operation))", "why_lost(led.operation); why && !OUT)"),
    ("what a group drops is told to those that wait", "return operation.called_by_all || (led", "return OUT || operation.called_by_all || (led"),
    ("what a group drops may be opened again", "operation.called_by_all && !unheard.empty()", "(OUT || operation.called_by_all) && !unheard.empty()"),
    ("what a group drops is kept for nobody's call", "else if (operation.called_by_all) dropped_early_", "else if (OUT || operation.called_by_all) dropped_early_"),
    ("who stays away from what a group does tells nobody", "if (operation.called_by_all) leave(", "if (OUT || operation.called_by_all) leave("),
    ("what does not end fails on all devices", "if (called != called_.end()) drop_here(id, *m.error, out); break; } }",
     "if (!OUT && called != called_.end()) drop_here(id, *m.error, out);\n      break;\n  }\n}"),
]


def with_switch(text, number, rule, old, new=None):
    """Where lines end does not matter."""
    pattern = r"\s+".join(re.escape(word) for word in old.split())
    new = (new or f"if (!OUT) {old}").replace("OUT", f"is_out({number})")
    text, found = re.subn(pattern, lambda _: new, text)
    if found != 1:
        sys.exit(f"turns_without.py: what stands for the rule \"{rule}\" is in turns.cpp {found} times, not once: {old}")
    return text


def main():
    header = (ROOT / "collective/turns/turns.h").read_text()
    source = (ROOT / "collective/turns/turns.cpp").read_text()
    turns = re.search(r"^class Turns \{.*?^\};\n", header, re.M | re.S)[0]
    body = re.search(r"^namespace troupe::internal::collective \{\n(.*)^\}  // namespace troupe", source, re.M | re.S)[1]
    for number, rule in enumerate(RULES):
        body = with_switch(body, number, *rule)
    names = "".join(f'    "{rule[0]}",\n' for rule in RULES)
    pathlib.Path(sys.argv[1]).write_text(f"""#include <algorithm>
#include <iterator>

#include "tests/collective/turns_world.h"

namespace troupe::testing {{
namespace {{
size_t left_out = SIZE_MAX;
bool is_out(size_t rule) {{ return rule == left_out; }}
}}
namespace with_switches {{
{turns}{body}}}  // namespace with_switches
const std::vector<std::string> kTurnsRules{{
{names}}};
void leave_out(size_t rule) {{ left_out = rule; }}
std::unique_ptr<AnyTurns> make_turns_with_switches(WorkerDevice here) {{ return make_turns<with_switches::Turns>(here); }}
}}  // namespace troupe::testing
""")


if __name__ == "__main__":
    main()
