// Charts: well-formed, inside their box, and right where the data is odd.
#include "tools/draw/chart.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>

#include "core/base/error.h"
#include "tests/support/error_of.h"

using namespace troupe;
using testing::invalid_text;
using tools::Chart;
using tools::Series;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(),
                 kInf = std::numeric_limits<double>::infinity();

// Empty if every tag is closed in order, attributes are quoted and no bare & or < is left; else what is
// wrong.
std::string xml_fault(const std::string& text) {
  std::vector<std::string> open;
  size_t at = 0, roots = 0;
  static const std::regex tag(R"(^<(/?)([a-z]+)((?: [A-Za-z0-9-]+="[^"<]*")*)(/?)>)");
  static const std::regex entity("^&(amp|lt|gt|quot);");
  while (at < text.size()) {
    std::smatch m;
    const std::string rest = text.substr(at, 200'000);
    if (text[at] == '<') {
      if (!std::regex_search(rest, m, tag)) return "bad tag: " + rest.substr(0, 60);
      if (m[1].length()) {
        if (open.empty() || open.back() != m[2]) return "closes " + m[2].str();
        open.pop_back();
      } else if (!m[4].length()) {
        if (open.empty()) ++roots;
        open.push_back(m[2]);
      }
      at += static_cast<size_t>(m[0].length());
    } else if (text[at] == '&') {
      if (!std::regex_search(rest, m, entity)) return "bare &: " + rest.substr(0, 20);
      at += static_cast<size_t>(m[0].length());
    } else {
      if (open.empty() && !std::isspace(static_cast<unsigned char>(text[at]))) return "text outside";
      ++at;
    }
  }
  return !open.empty() ? "left open: " + open.back() : roots == 1 ? "" : "not one root";
}

using Points = std::vector<std::pair<double, double>>;

// The points of each drawn line; a single point counts as a line.
std::vector<Points> lines(const std::string& svg) {
  std::vector<Points> out;
  static const std::regex shape(R"re(points="([^"]*)"|<circle cx="([^"]*)" cy="([^"]*)")re");
  for (std::sregex_iterator it(svg.begin(), svg.end(), shape), end; it != end; ++it) {
    Points points;
    std::istringstream in((*it)[2].matched ? (*it)[2].str() + "," + (*it)[3].str() : (*it)[1].str());
    double x, y;
    char comma;
    while (in >> x >> comma >> y) points.emplace_back(x, y);
    out.push_back(points);
  }
  return out;
}

std::string checked(const Chart& chart) {
  const std::string svg = tools::render_chart(chart);
  CHECK(xml_fault(svg) == "");
  CHECK(svg.find("nan") == std::string::npos);
  CHECK(svg.find("inf") == std::string::npos);
  for (const Points& line : lines(svg))
    for (const auto& [x, y] : line) CHECK((x >= 0 && x <= chart.width && y >= 0 && y <= chart.height));
  return svg;
}

Series ramp(std::string name, int n, double slope, bool right = false) {
  Series s{.name = std::move(name), .right = right};
  for (int i = 0; i < n; ++i) s.x.push_back(i), s.y.push_back(slope * i);
  return s;
}

// A folder of its own, gone at the end.
struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-chart-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

TEST_CASE("the XML checker of this test sees faults", "[tools]") {
  CHECK(xml_fault("<a b=\"1\"><c/>x &amp; y</a>\n") == "");
  for (const char* bad : {"<a>", "<a></b>", "<a b=1></a>", "<a>&</a>", "<a></a><a></a>", "x<a></a>"})
    CHECK(xml_fault(bad) != "");
}

TEST_CASE("a chart holds title, labels, legend and a line per series", "[tools]") {
  const std::string svg = checked({.title = "a < b & \"c\"",
                                   .x_label = "step",
                                   .left_label = "loss",
                                   .right_label = "accuracy",
                                   .series = {ramp("loss", 50, -2), ramp("accuracy", 50, 0.02, true)}});
  for (const char* text :
       {"a &lt; b &amp; &quot;c&quot;", ">step<", ">loss<", ">accuracy<", "stroke-dasharray"})
    CHECK(svg.find(text) != std::string::npos);
  REQUIRE(lines(svg).size() == 2);
  CHECK(lines(svg)[0].size() == 50);
}

TEST_CASE("points are where the axes say", "[tools]") {
  const auto line = lines(checked({.series = {{.name = "a", .x = {0, 5, 10}, .y = {0, 50, 100}}}})).at(0);
  CHECK(line[1].first == Approx((line[0].first + line[2].first) / 2).margin(0.02));
  CHECK(line[1].second == Approx((line[0].second + line[2].second) / 2).margin(0.02));
  CHECK(line[0].second > line[2].second);  // y grows upward
  // Each axis has its own scale: both lines span the whole box.
  const auto two = lines(checked({.series = {ramp("a", 11, 10), ramp("b", 11, 0.001, true)}}));
  CHECK(two[0].back().second == Approx(two[1].back().second).margin(0.02));
}

TEST_CASE("values that are not finite leave a gap", "[tools]") {
  const auto drawn =
      lines(checked({.series = {{.name = "a", .x = {0, 1, 2, 3, 4, 5}, .y = {1, 2, kNan, 3, kInf, 4}}}}));
  REQUIRE(drawn.size() == 3);
  CHECK(drawn[0].size() == 2);
  CHECK(drawn[1].size() == 1);  // alone: a dot
  CHECK(drawn[2].size() == 1);
  CHECK(lines(checked({.series = {{.name = "a", .x = {kNan, 1}, .y = {1, 1}}}})).size() == 1);
}

TEST_CASE("no points, one point and constant series are charts too", "[tools]") {
  CHECK(checked({.title = "empty"}).find("no data") != std::string::npos);
  CHECK(checked({.series = {{.name = "none"}}}).find("no data") != std::string::npos);
  CHECK(checked({.series = {{.name = "bad", .x = {1, 2}, .y = {kNan, -kInf}}}}).find("no data") !=
        std::string::npos);
  CHECK(lines(checked({.series = {{.name = "one", .x = {3}, .y = {0.5}}}})).size() == 1);
  for (double v : {0.0, 5.0, -1e-9, 1e300})
    CHECK(lines(checked({.series = {{.name = "flat", .x = {0, 1, 2}, .y = {v, v, v}}}})).at(0).size() == 3);
  CHECK(lines(checked({.series = {{.name = "wide", .x = {0, 1}, .y = {-1e300, 1e300}}}})).size() == 1);
  CHECK(lines(checked({.series = {{.name = "wider", .x = {0, 1}, .y = {-1.7e308, 1.7e308}}}})).empty());
  CHECK(lines(checked({.series = {{.name = "narrow", .x = {0, 1}, .y = {1, 1 + 1e-15}}}})).size() == 1);
}

TEST_CASE("a smoothed series is drawn twice, and the mean of a constant is the constant", "[tools]") {
  Series s{.name = "loss", .smooth = 5};
  for (int i = 0; i < 40; ++i) s.x.push_back(i), s.y.push_back(i % 2 ? 1.0 : 3.0);
  s.y[20] = kNan;
  const auto drawn = lines(checked({.series = {s}}));
  REQUIRE(drawn.size() == 4);  // raw and mean, in two pieces each
  double raw = 0, mean = 0;
  for (size_t i = 1; i < drawn[1].size(); ++i) {
    raw += std::abs(drawn[1][i].second - drawn[1][i - 1].second);
    mean += std::abs(drawn[3][i].second - drawn[3][i - 1].second);
  }
  CHECK(mean < raw / 4);
  s.y.assign(40, 2.0);
  const auto flat = lines(checked({.series = {s}}));
  CHECK(flat[0] == flat[1]);
}

TEST_CASE("a smoothed line begins on the data, and follows a short run", "[tools]") {
  for (const int n : {2, 5, 12, 60, 400}) {
    Series s{.name = "loss", .smooth = 16};  // falls fast at first, as losses do
    for (int i = 0; i < n; ++i) s.x.push_back(i), s.y.push_back(1 + 3 * std::exp(-8.0 * i / n));
    const auto drawn = lines(checked({.series = {s}}));
    REQUIRE(drawn.size() == 2);
    const double height = drawn[0].back().second - drawn[0].front().second;  // pixels that the loss falls
    CHECK(drawn[1].front().second == Approx(drawn[0].front().second).margin(0.01));
    double apart = 0;
    for (size_t i = 0; i < drawn[0].size(); ++i)
      apart = std::max(apart, std::abs(drawn[1][i].second - drawn[0][i].second));
    INFO(n << " points: " << apart << " of " << height << " pixels");
    CHECK(apart < 0.12 * height);
  }
}

TEST_CASE("the mean of the last values is of all where there are fewer", "[tools]") {
  const Series losses{.name = "loss", .y = {8, 4, 2, 1}};
  CHECK(losses.mean_of_last(2) == 1.5);
  CHECK(losses.mean_of_last(4) == 3.75);
  CHECK(losses.mean_of_last(20) == 3.75);
  CHECK(invalid_text([] { (void)Series{.name = "loss"}.mean_of_last(3); }).find("'loss' has no values") !=
        std::string::npos);
}

TEST_CASE("ticks are round and cover the range", "[tools]") {
  CHECK(tools::nice_ticks(0, 1, 5) == std::vector<double>{0, 0.2, 0.4, 3 * 0.2, 0.8, 1});
  CHECK(tools::nice_ticks(-3, 12, 4) == std::vector<double>{-5, 0, 5, 10, 15});
  for (double low : {-1e6, -7.3, 0.0, 1e-8, 4e5})
    for (double range : {0.0, 1e-9, 0.07, 3.0, 1e9})
      for (int wanted : {1, 4, 9}) {
        const auto ticks = tools::nice_ticks(low, low + range, wanted);
        INFO(low << " + " << range << ", " << wanted);
        CHECK(ticks.size() >= 2);
        CHECK(ticks.size() <= static_cast<size_t>(wanted) + 3);
        CHECK(ticks.front() <= low + range * 1e-6 + std::abs(low) * 1e-8);
        CHECK(ticks.back() >= low + range * (1 - 1e-6) - std::abs(low) * 1e-8);
      }
}

TEST_CASE("a chart is written whole, replaces the old one, and leaves nothing beside it", "[tools]") {
  const mode_t mask = ::umask(022);
  Folder dir;
  const std::string path = dir.path / "run.svg";
  for (int n : {5, 9}) {
    const Chart chart{.title = "run", .series = {ramp("loss", n, 1)}};
    tools::write_chart(path, chart);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    CHECK(text.str() == tools::render_chart(chart));
  }
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path), {}) == 1);
  struct stat status {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0644);
  ::umask(mask);
}

TEST_CASE("a chart that cannot be made or written says why", "[tools]") {
  Folder dir;
  auto refusal = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const Error& e) {
      return e.message();
    }
    return "nothing refused";
  };
  const std::string nowhere = dir.path / "none" / "run.svg";
  CHECK(refusal([&] { tools::write_chart(nowhere, {}); }).find("[chart] " + nowhere + ": ") == 0);
  CHECK(refusal([&] {
          tools::write_chart(dir.path, {});
        }).find("[chart] " + dir.path.string() + ": cannot be written") == 0);
  CHECK(std::filesystem::is_empty(dir.path));
  for (const auto& file : std::filesystem::directory_iterator(dir.path.parent_path()))
    CHECK(file.path().string().rfind(dir.path.string() + ".", 0) == std::string::npos);  // nothing beside it
  CHECK(refusal([] { tools::render_chart({.series = {{.name = "s", .x = {1}, .y = {}}}}); }) ==
        "[chart] series 's' has 1 x and 0 y values");
  CHECK(refusal([] { tools::render_chart({.width = 10}); }).find("size 10 x 460") != std::string::npos);
}
