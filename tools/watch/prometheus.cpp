#include "tools/watch/prometheus.h"

#include <fmt/format.h>

#include <cmath>
#include <map>

namespace troupe::tools {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '\\' ? "\\\\" : c == '"' ? "\\\"" : c == '\n' ? "\\n" : std::string(1, c);
  return out;
}

struct Family {
  std::string help, type;
  std::vector<std::string> samples;  // "{labels} value"
};
using Families = std::map<std::string, Family>;

void add_sample(Families& all, const std::string& name, const char* type, const std::string& help,
                const std::string& labels, double value) {
  Family& family = all[name];
  family.type = type, family.help = help;
  family.samples.push_back("{" + labels + "} " + (std::isfinite(value) ? fmt::format("{}", value) : "NaN"));
}

std::string spaced(std::string name) {
  for (char& c : name)
    if (c == '_') c = ' ';
  return name;
}

// A counter of Cluster::metrics(), by its name and unit.
void add_counter(Families& all, std::string name, const std::string& labels, double value) {
  for (char& c : name)
    if (c == ':' || c == '.') c = '_';
  const std::string help = "Of the worker, as Cluster::metrics() has it: " + spaced(name);
  const auto ends = [&](std::string_view end) {
    if (!name.ends_with(end)) return false;
    name.resize(name.size() - end.size());
    return true;
  };
  const bool grows = ends("_total") || ends("_sent");
  if (ends("_us")) name += "_seconds", value *= 1e-6;
  if (ends("_ms")) name += "_seconds", value *= 1e-3;
  add_sample(all, "troupe_" + name + (grows ? "_total" : ""), grows ? "counter" : "gauge", help, labels,
             value);
}

void add_worker(Families& all, const JobReport& job, const WorkerRow& w) {
  const std::string labels = fmt::format("job=\"{}\",program=\"{}\",worker=\"{}\"", escaped(job.job),
                                         escaped(job.program), escaped(w.worker));
  add_sample(all, "troupe_up", "gauge", "Whether the worker answers", labels, w.silent.empty());
  if (!w.silent.empty()) return;
  for (const auto& [name, value] : w.metrics) add_counter(all, name, labels, static_cast<double>(value));
  add_sample(all, "troupe_starved_seconds_total", "counter",
             "Time that threads of the process could have run, and had no core", labels, w.starved);
  add_sample(all, "troupe_steps_per_second", "gauge",
             "Of the last steps of the program that the worker drives", labels, w.steps_per_second);
  if (w.step_age >= 0)
    add_sample(all, "troupe_step_age_seconds", "gauge", "Since the step began that runs", labels, w.step_age);
  if (w.loss) add_sample(all, "troupe_loss", "gauge", "Of the last step", labels, *w.loss);
  for (const MethodRow& m : w.methods) {
    const std::string of = labels + ",method=\"" + escaped(m.method) + "\"";
    add_sample(all, "troupe_method_calls_total", "counter", "Calls of a method that have begun", of,
               static_cast<double>(m.calls));
    add_sample(all, "troupe_method_busy_seconds_total", "counter", "Time that a method was at work", of,
               m.busy);
    add_sample(all, "troupe_method_queued_seconds_total", "counter",
               "Time that calls of a method waited in mailboxes", of, m.queued);
  }
}

}  // namespace

std::string prometheus_text(const std::vector<JobReport>& jobs) {
  Families all;
  for (const JobReport& job : jobs) {
    add_sample(all, "troupe_restarts_total", "counter", "How often the job has started again",
               fmt::format("job=\"{}\",program=\"{}\"", escaped(job.job), escaped(job.program)),
               static_cast<double>(job.restarts));
    for (const WorkerRow& w : job.workers) add_worker(all, job, w);
  }
  std::string out;
  for (const auto& [name, family] : all) {
    out += "# HELP " + name + " " + family.help + ".\n# TYPE " + name + " " + family.type + "\n";
    for (const std::string& sample : family.samples) out += name + sample + "\n";
  }
  return out;
}

}  // namespace troupe::tools
