// How the cost of calls, backward passes and memory grows. Started alone, it starts clusters of processes,
// itself once more in each (`troupe run -n N bench_scale --part ...`), and says how fast each cost grows.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "bench/scale/clocks.h"
#include "bench/scale/parts.h"
#include "bench/scale/report.h"
#include "tools/flags/flags.h"
#include "tools/flags/progress.h"
using namespace troupe;

namespace {

struct Wanted {
  std::string part = "all", pictures;
  int64_t rounds = 3;
  bool markdown = false;
};

/// A cluster to start, and what to measure in it.
struct Start {
  std::string part;
  int processes;
};

constexpr int most_workers(bool quick) { return quick ? 4 : 32; }

std::vector<Start> starts(const std::string& part, bool quick) {
  std::vector<Start> all = {{"callers", 2}};
  for (int n = 2; n <= most_workers(quick); n *= 2) all.push_back({"workers", n});
  for (const Start& s : {Start{"backward", 3}, Start{"memory", 2}, Start{"limits", 2}}) all.push_back(s);
  if (part != "all") std::erase_if(all, [&](const Start& s) { return s.part != part; });
  return all;
}

std::string in_quotes(const std::filesystem::path& path) {
  std::string out = "'";
  for (char c : path.string()) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Runs a cluster to its end; gives each line of its output, as it comes.
void run(const bench::Bench& bench, const Start& start, const std::function<void(const std::string&)>& take) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command = fmt::format(
      "{} run -n {} {} --part {}{}{}", in_quotes(self.parent_path() / "troupe"), start.processes,
      in_quotes(self), start.part, bench.quick() ? " --quick" : "", bench.least() ? " --least" : "");
  FILE* output = popen(command.c_str(), "r");
  if (!output) throw_error(ErrorKind::failed, "[bench] cannot start " + command);
  std::string line;
  for (int c; (c = std::fgetc(output)) != EOF;) {
    if (c != '\n')
      line += static_cast<char>(c);
    else
      take(std::exchange(line, {}));
  }
  if (pclose(output) != 0)
    throw_error(ErrorKind::failed, "[bench] this failed, and said why above: " + command);
}

using Json = nlohmann::ordered_json;

/// Of the same line in several rounds: each number is the median of that number.
Json median_of(const std::vector<std::vector<Json>>& rounds, size_t line) {
  Json out = rounds.front().at(line);
  for (auto& [key, value] : out.items()) {
    if (!value.is_number()) continue;
    std::vector<double> all;
    for (const auto& round : rounds) all.push_back(round.at(line).at(key));
    if (value != bench::median(all)) value = bench::median(all);
  }
  return out;
}

bench::Line line_of(const Json& json) {
  bench::Line line{json.at("bench"), {}};
  for (const auto& [key, value] : json.items())
    if (value.is_number()) line.values[key] = value;
  return line;
}

/// Runs all clusters once for each round, so that a bad minute of the machine spoils one value of each.
std::vector<Json> conduct_rounds(const bench::Bench& bench, const Wanted& wanted) {
  const auto all = starts(wanted.part, bench.quick());
  const int64_t times = bench.quick() ? 1 : wanted.rounds;
  tools::Progress progress({.total = times * static_cast<int64_t>(all.size()), .label = "scale"});
  std::vector<std::vector<Json>> rounds;
  int64_t done = 0;
  for (int64_t round = 0; round < times; ++round) {
    rounds.emplace_back();
    for (const Start& start : all) {
      progress.set_label(fmt::format("{}, {} processes", start.part, start.processes));
      progress.update(done);
      run(bench, start, [&](const std::string& text) {
        if (text.starts_with("{")) rounds.back().push_back(Json::parse(text));
      });
      progress.update(++done);
    }
    if (rounds.back().size() != rounds.front().size())
      throw_error(ErrorKind::failed, fmt::format("[bench] round {} printed {} lines, the first {}", round + 1,
                                                 rounds.back().size(), rounds.front().size()));
  }
  progress.finish();
  std::vector<Json> lines;
  for (size_t i = 0; i < rounds.front().size(); ++i) lines.push_back(median_of(rounds, i));
  return lines;
}

void conduct(const bench::Bench& bench, const Wanted& wanted) {
  const auto printed = conduct_rounds(bench, wanted);
  std::vector<bench::Line> lines;
  for (const Json& json : printed) lines.push_back(line_of(json));
  const auto curves = bench::curves_of(lines);
  if (wanted.markdown) {
    std::cout << bench::table_of(curves, lines);
  } else {
    for (const Json& json : printed) std::cout << json.dump() << std::endl;
    for (const bench::Curve& curve : curves) {
      const bench::Growth g = bench::growth_of(curve.points);
      bench.emit(
          curve.bench + (curve.field == "value" ? "" : "_" + curve.field) + "_growth", g.ratio, "1",
          {{"fixed", g.fixed}, {"each", g.each}, {"steepest", g.steepest}, {"steepest_at", g.steepest_at}});
    }
  }
  if (!wanted.pictures.empty())
    for (const auto& path : bench::draw(wanted.pictures, curves)) std::cerr << "bench: " << path << "\n";
}

void measure(const bench::Bench& bench, const std::string& part, Cluster& cluster) {
  const auto workers = static_cast<int>(cluster.workers().size());
  const auto all = starts(part, bench.quick());
  if (part == "all" ||
      std::none_of(all.begin(), all.end(), [&](const Start& s) { return s.processes == workers; }))
    throw_invalid(
        fmt::format("[bench] --part {} with {} workers: bench_scale starts its own clusters; "
                    "start it without troupe run",
                    part, workers));
  if (part == "callers") measure_callers(bench, cluster);
  if (part == "workers") measure_workers(bench, cluster, workers == most_workers(bench.quick()));
  if (part == "backward") measure_backward(bench, cluster);
  if (part == "memory") measure_memory(bench, cluster);
  if (part == "limits") measure_limits(bench, cluster);
}

}  // namespace

int main(int argc, char** argv) {
  Wanted wanted;
  bench::Bench bench("bench_scale",
                     "How costs grow: with callers, workers, hops, actors. Starts its own processes.", argc,
                     argv, [&](tools::Flags& flags) {
                       flags.add("--part", wanted.part, "what to measure",
                                 {"all", "callers", "workers", "backward", "memory", "limits"});
                       flags.add("--rounds", wanted.rounds,
                                 "times that everything is measured; values are medians of them", {1, 1000});
                       flags.add("--pictures", wanted.pictures, "folder to draw scale-*.svg in; empty: none");
                       flags.add("--markdown", wanted.markdown, "a table instead of lines of JSON");
                     });
  if (bench.exit_code) return *bench.exit_code;
  if (!LaunchEnvironment::read()) return tools::run_main("bench_scale", [&] { conduct(bench, wanted); });
  return launch(hosting<bench::Peer>(), [&](Cluster& cluster) { measure(bench, wanted.part, cluster); });
}
