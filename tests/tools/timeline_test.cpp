// The timeline of a pipeline: a box for each action, in its place, and an arrow for each message.
#include "tools/draw/timeline.h"

#include <catch2/catch.hpp>

#include <nlohmann/json.hpp>
#include <regex>

#include "tests/support/error_of.h"
#include "tests/support/folder.h"
#include "tools/draw/trace_picture.h"

using namespace troupe;
using namespace troupe::testing;
using namespace troupe::parallel;

namespace {

// What a run of the policy on the virtual clock would report, a unit taken for a millisecond.
StepReport report_of(const Policy& policy) {
  const Simulation s = simulate(policy);
  StepReport r;
  r.schedule = name_of(policy);
  r.workers = workers_of(policy);
  r.micro_batches = micro_batches_of(policy);
  r.duration = s.makespan * 1e-3;
  r.peak_live = s.peak_live;
  for (const double b : s.busy) r.busy.push_back(b * 1e-3);
  r.exposed.assign(s.busy.size(), 0);
  const int stages = r.workers * chunks_of(policy);
  for (const auto& e : s.events) {
    const int stage = e.action.chunk * r.workers + e.worker;
    r.events.push_back({e.worker, stage, e.action, e.begin * 1e-3, e.end * 1e-3});
    if (e.action.work == Work::forward && stage + 1 < stages)
      r.messages.push_back({stage, stage + 1, e.action.micro_batch, e.end * 1e-3, e.end * 1e-3});
    if (e.action.work != Work::forward && e.action.work != Work::weight && stage > 0)
      r.messages.push_back({stage, stage - 1, e.action.micro_batch, e.end * 1e-3, e.end * 1e-3});
  }
  return r;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

TEST_CASE("a timeline has a box for each action, which lie side by side") {
  for (const Policy& policy :
       std::vector<Policy>{gpipe(4, 8), interleaved(2, 4, 2), zb_h1(4, 8), credits(3, 5, 2)}) {
    const StepReport report = report_of(policy);
    INFO(report.schedule);
    const std::string svg = tools::render_timeline(report);
    CHECK(count(svg, "<title>") == report.events.size() + 1);
    std::map<double, std::vector<std::pair<double, double>>> rows;  // by y
    const std::regex box(R"re(<rect x="([0-9.]+)" y="([0-9.]+)" width="([0-9.]+)" height="26")re");
    for (auto at = std::sregex_iterator(svg.begin(), svg.end(), box); at != std::sregex_iterator(); ++at) {
      const double x = std::stod((*at)[1]), y = std::stod((*at)[2]), w = std::stod((*at)[3]);
      CHECK(x >= 44);
      CHECK(x + w <= 960 - 116);
      rows[y].emplace_back(x, x + w);
    }
    CHECK(rows.size() == size_t(report.workers));
    for (auto& [y, boxes] : rows) {
      std::sort(boxes.begin(), boxes.end());
      for (size_t i = 1; i < boxes.size(); ++i) CHECK(boxes[i].first >= boxes[i - 1].second - 0.02);
    }
    CHECK(svg.find(report.schedule) != std::string::npos);
  }
}

TEST_CASE("the axis of a timeline has the unit of its step") {
  const StepReport report = report_of(gpipe(2, 2));
  const auto lasting = [&](double seconds) {
    StepReport other = report;
    const double times = seconds / report.duration;
    other.duration = seconds;
    for (auto& e : other.events) e.begin *= times, e.end *= times;
    return tools::render_timeline(other);
  };
  // Boxes lie where they lay, whatever the unit.
  const std::regex box("<rect x=\"([0-9.]+)\" y=\"([0-9.]+)\" width=\"([0-9.]+)\" height=\"26");
  const auto boxes = [&](const std::string& svg) {
    std::vector<std::string> all;
    for (std::sregex_iterator at(svg.begin(), svg.end(), box), end; at != end; ++at) all.push_back(at->str());
    return all;
  };
  const auto first = boxes(lasting(20));
  CHECK(first.size() == report.events.size());
  for (const auto& [seconds, unit] :
       {std::pair{20.0, ">seconds<"}, {0.05, ">milliseconds<"}, {5e-5, ">microseconds<"}}) {
    const std::string svg = lasting(seconds);
    CHECK(svg.find(unit) != std::string::npos);
    CHECK(boxes(svg) == first);
  }
}

TEST_CASE("a trace has an arrow for each message, from the box that sent it to the one that used it") {
  const StepReport report = report_of(zb_h1(3, 6));
  const auto trace = nlohmann::json::parse(tools::chrome_trace(report));
  std::map<int64_t, nlohmann::json> begins;
  size_t boxes = 0, arrows = 0;
  const auto inside = [&](const nlohmann::json& arrow) {  // of a box of its row
    for (const auto& e : trace.at("traceEvents"))
      if (e.at("ph") == "X" && e.at("tid") == arrow.at("tid") &&
          double(arrow.at("ts")) >= double(e.at("ts")) &&
          double(arrow.at("ts")) <= double(e.at("ts")) + double(e.at("dur")))
        return true;
    return false;
  };
  for (const auto& e : trace.at("traceEvents")) {
    boxes += e.at("ph") == "X";
    if (e.at("ph") == "s") begins[e.at("id").get<int64_t>()] = e;
    if (e.at("ph") != "f") continue;
    ++arrows;
    const auto& from = begins.at(e.at("id").get<int64_t>());
    CHECK(double(from.at("ts")) <= double(e.at("ts")));
    CHECK(from.at("tid") != e.at("tid"));
    CHECK(inside(from));
    CHECK(inside(e));
  }
  CHECK(boxes == report.events.size());
  CHECK(arrows == report.messages.size());
  CHECK(arrows == 2 * 2 * 6);
}

TEST_CASE("an empty report makes a picture, and a width out of range does not") {
  CHECK(tools::render_timeline({}).find("</svg>") != std::string::npos);
  CHECK(invalid_text([] { (void)tools::render_timeline({}, 10); }).find("240 to 20000") != std::string::npos);
  Folder folder;
  tools::write_timeline(folder.path / "t.svg", report_of(gpipe(2, 2)));
  CHECK(content(folder.path / "t.svg").starts_with("<svg"));
  tools::write_chrome_trace(folder.path / "t.json", report_of(gpipe(2, 2)));
  CHECK(nlohmann::json::accept(content(folder.path / "t.json")));
}

TEST_CASE("a picture of a profile has each worker's work, and under it what goes on at once in groups") {
  using internal::actors::TraceEvent;
  const auto event = [](const char* mode, const char* name, int64_t begin, int64_t end, int64_t worker) {
    return TraceEvent{.mode = mode, .name = name, .begin = begin, .end = end, .worker = worker};
  };
  const Trace trace(
      {event("handle", "Net::loss", 0, 2'000'000, 0), event("part", "loss", 2'000'000, 9'000'000, 0),
       event("group", "all_reduce g/1/0", 3'000'000, 6'000'000, 0),
       event("group", "all_reduce g/1/<1>", 4'000'000, 8'000'000, 0),
       event("group", "all_reduce g/1/2", 6'000'000, 9'000'000, 0),
       event("part", "loss", 1'000'000, 10'000'000, 1), event("group", "barrier", 5'000'000, -1, 1),
       event("handle", "replica.anchor", 0, 2'000'000, 0),
       event("send", "gradients", 5'000'000, 5'000'000, 1)});
  const std::string svg = tools::render_trace(trace, "a pass");
  // Without what has not ended, and messages.
  CHECK(count(svg, "<title>") == 7);
  CHECK(count(svg, "<title>all_reduce g/1/&lt;1&gt;: 4.000 ms</title>") == 1);
  // Two operations that overlap lie under each other, and the third where the first one was.
  const auto y_of = [&](const std::string& title) {
    const size_t at = svg.rfind("<rect", svg.find("<title>" + title));
    const size_t y = svg.find("y=\"", at) + 3;
    return std::stod(svg.substr(y));
  };
  const double first = y_of("all_reduce g/1/0"), second = y_of("all_reduce g/1/&lt;1&gt;");
  CHECK(first > y_of("Net::loss"));
  CHECK(second > first);
  CHECK(y_of("all_reduce g/1/2") == first);
  CHECK(tools::render_trace(Trace({}), "nothing").find("</svg>") != std::string::npos);
  CHECK(invalid_text([&] { (void)tools::render_trace(trace, "", 10); }).find("240 to 20000") !=
        std::string::npos);
}
