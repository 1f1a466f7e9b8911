#include "parallel/pipeline/step_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

namespace troupe::parallel {
namespace {

double part_of(const std::vector<double>& times, double all) {
  return all > 0 ? std::accumulate(times.begin(), times.end(), 0.0) / all : 0;
}

}  // namespace

double StepReport::bubble() const {
  const double all = duration * workers;
  return all > 0 ? 1 - part_of(busy, all) : 0;
}

double StepReport::exposed_communication() const { return part_of(exposed, duration * workers); }

std::vector<StageTimes> StepReport::stage_times(int stages) const {
  struct Mean {
    double sum = 0;
    int count = 0;
    void add(double x) { sum += x, ++count; }
    double value() const { return count ? sum / count : 0; }
  };
  std::vector<std::array<Mean, 4>> means(static_cast<size_t>(stages));
  for (const Event& e : events)
    means.at(static_cast<size_t>(e.stage))[static_cast<size_t>(e.action.work)].add(e.end - e.begin);
  std::vector<StageTimes> out;
  for (const auto& [f, b, i, w] : means) {
    const double half = b.value() / 2;
    out.push_back({f.value(), i.count ? i.value() : half, w.count ? w.value() : half});
  }
  return out;
}

std::string StepReport::str() const {
  std::string text = fmt::format(
      "{}: {} workers, {} micro-batches, {:.3g} ms; idle {:.1f} %, waiting for messages {:.1f} %", schedule,
      workers, micro_batches, duration * 1e3, 100 * bubble(), 100 * exposed_communication());
  for (int w = 0; w < workers; ++w) {
    const auto i = static_cast<size_t>(w);
    text += fmt::format("\n  worker {}: busy {:.3g} ms, at most {} micro-batches alive", w, busy[i] * 1e3,
                        peak_live[i]);
  }
  return text;
}

}  // namespace troupe::parallel
