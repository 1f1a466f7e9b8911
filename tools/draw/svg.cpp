#include "tools/draw/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "data/formats/file.h"

namespace troupe::tools {

std::string escape_xml(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) >= 0x20)
      out += c;
    else
      out += ' ';
  }
  return out;
}

std::string tick_label(double v, double step) {
  if (v == 0) return "0";
  if (std::abs(v) >= 1e6 || step < 1e-4) return fmt::format("{:g}", v);
  return fmt::format("{:.{}f}", v, std::max(0, static_cast<int>(std::ceil(-std::log10(step) - 1e-9))));
}

void Svg::head(int width, int height, const std::string& title) {
  text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\">\n"
      "<title>{2}</title>\n<style>\n"
      "text {{ font: 12px system-ui, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif; fill: "
      "#3b4252 }}\n"
      ".title {{ font-size: 17px; font-weight: 600; fill: #1f2430 }}\n"
      ".quiet {{ fill: #6b7385 }}\n.paper {{ fill: #ffffff }}\n"
      ".grid {{ stroke: #e4e7ee; stroke-width: 1 }}\n.axis {{ stroke: #b4bac8; stroke-width: 1 }}\n"
      ".line {{ fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round }}\n"
      ".raw {{ stroke-width: 1.2; stroke-opacity: 0.28 }}\n"
      "@media (prefers-color-scheme: dark) {{\n"
      "  text {{ fill: #c9cfdb }} .title {{ fill: #eef1f6 }} .quiet {{ fill: #98a1b3 }} .paper {{ fill: "
      "#16191f }}\n"
      "  .grid {{ stroke: #2a2f3a }} .axis {{ stroke: #4b5363 }}\n}}\n</style>\n"
      "<rect class=\"paper\" width=\"{0}\" height=\"{1}\"/>\n",
      width, height, escape_xml(title));
}

void Svg::rule(const char* style, double x1, double y1, double x2, double y2) {
  text += fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n", style,
                      x1, y1, x2, y2);
}

void Svg::label(double x, double y, const char* anchor, const char* style, const std::string& words) {
  text += fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", style, x,
                      y, anchor, escape_xml(words));
}

void Svg::turned(double x, double y, const std::string& words) {
  text += fmt::format(
      "<text transform=\"translate({:.1f} {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n", x, y,
      escape_xml(words));
}

std::vector<double> nice_ticks(double low, double high, int wanted) {
  if (!(std::abs(low) <= 1e301 && std::abs(high) <= 1e301)) low = 0, high = 1;
  if (low > high) std::swap(low, high);
  // Too narrow to be told apart in a double, or a constant: a range around it.
  const double middle = low / 2 + high / 2, least = std::max(std::abs(middle) * 1e-9, 1e-300);
  if (high - low < least) {
    const double around = middle == 0 ? 1 : std::abs(middle) * 0.1;
    low = middle - around, high = middle + around;
  }
  const double raw = (high - low) / std::max(wanted, 1);
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power * 10;
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  std::vector<double> ticks;
  for (double k = first; k <= last; ++k) ticks.push_back(k * step);
  return ticks;
}

void write_picture(const std::string& path, const std::string& text) {
  datasets::AtomicFile file(path, "chart");
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace troupe::tools
