#include "tests/soak/plan.h"

#include "core/base/generator.h"

namespace troupe::soak {
namespace {

using namespace std::chrono_literals;

Duration up_to(Generator& random, Duration most) {
  return Duration(static_cast<int64_t>(random.below(static_cast<uint64_t>(most.count()) + 1)));
}

internal::net::Faults links_of(Generator& random) {
  internal::net::Faults links;
  links.delay = 10us + up_to(random, random.below(4) ? 1ms : 20ms);
  links.jitter = random.below(3) ? up_to(random, random.below(4) ? 2ms : 40ms) : 0ns;
  if (random.below(4) == 0) links.bytes_per_second = 1e5 + 1e6 * random.uniform();
  if (random.below(4) == 0) {  // a lossy network under connections that make it good
    links.resend = 200ms;
    links.drop = 0.1 * random.uniform();
    links.duplicate = 0.2 * random.uniform();
    links.reorder = 0.2 * random.uniform();
  } else if (random.below(10) == 0) {  // connections that break of it
    links.drop = 0.02 * random.uniform();
  }
  return links;
}

Fault fault_of(Generator& random) {
  Fault fault;
  const uint64_t kind = random.below(6);
  fault.kind = kind < 3 ? Fault::Kind::kill : kind == 3 ? Fault::Kind::reset : Fault::Kind::partition;
  fault.moment = static_cast<Moment>(random.below(3));
  fault.message = 1 + random.below(random.below(2) ? 40 : 160);
  fault.receiver = random.below(2) == 0;
  fault.last_words = random.below(2) == 0;
  if (fault.kind == Fault::Kind::partition) fault.lasts = up_to(random, random.below(2) ? 300ms : 12s);
  if (fault.kind == Fault::Kind::kill && random.below(3) == 0) fault.lasts = 1ms + up_to(random, 50ms);
  return fault;
}

const char* const kPrograms[] = {"calls", "references", "values", "training"};

}  // namespace

Plan plan_of(uint64_t seed) {
  Generator random(seed);
  Plan plan;
  plan.seed = seed;
  plan.workers = 3 + static_cast<int>(random.below(2));
  plan.links = links_of(random);
  plan.late_turns = random.below(2) ? random.below(8) : 0;
  plan.latest_turn = 1us + up_to(random, 3ms);
  const uint64_t faults = random.below(8);  // none in 2 of 8 runs, then 1 in 4, 2 in 1, 3 in 1
  for (uint64_t i = 0; i < (faults < 2 ? 0 : faults < 6 ? 1 : faults - 4); ++i)
    plan.faults.push_back(fault_of(random));
  const uint64_t programs = 1 + random.below(2);
  for (uint64_t i = 0; i < programs; ++i)
    plan.programs.emplace_back(static_cast<Program>(random.below(4)), random.below(3) ? 0 : 1);
  return plan;
}

std::string describe(const Plan& plan) {
  const auto us = [](Duration d) { return std::to_string(d.count() / 1000) + " us"; };
  const auto percent = [](double p) {
    return std::to_string(static_cast<int>(p * 1000) / 10.0).substr(0, 4) + " %";
  };
  std::string out = "seed " + std::to_string(plan.seed) + ": " + std::to_string(plan.workers) + " workers\n";
  out += "links: delay " + us(plan.links.delay) + " + up to " + us(plan.links.jitter);
  if (plan.links.bytes_per_second > 0)
    out += ", " + std::to_string(static_cast<int64_t>(plan.links.bytes_per_second)) + " bytes/s";
  if (plan.links.drop > 0) out += ", lose " + percent(plan.links.drop);
  if (plan.links.resend > 0ns)
    out +=
        " and send again, double " + percent(plan.links.duplicate) + ", swap " + percent(plan.links.reorder);
  out += "\nmailboxes: " + std::to_string(plan.late_turns) + " of 8 turns up to " + us(plan.latest_turn) +
         " late\n";
  for (const auto& [program, worker] : plan.programs)
    out += std::string("program: ") + kPrograms[static_cast<int>(program)] + " on w" +
           std::to_string(worker) + "\n";
  for (const Fault& f : plan.faults) {
    out += f.describe();
    if (f.kind == Fault::Kind::kill && f.lasts > 0ns) out += "; a new worker " + us(f.lasts) + " later";
    out += "\n";
  }
  return out;
}

}  // namespace troupe::soak
