// What pictures have in common: colours, text, lines, ticks, and how they are written.
#pragma once
#include <array>
#include <string>
#include <string_view>

namespace troupe::tools {

/// Colours that the colour-blind tell apart (after Okabe and Ito), readable on white and on near-black.
inline constexpr std::array<const char*, 6> kColors = {"#2f7ed8", "#e07b00", "#1a9e77",
                                                       "#c8559b", "#8a6fd1", "#a0852a"};
inline constexpr double kCharWidth = 6.7;  ///< of the 12 pixel font, about

/// SVG text under construction. Styles: title, quiet, paper, grid, axis, line, raw.
struct Svg {
  std::string text;
  /// Everything up to the background. Follows the reader's light or dark colour scheme.
  void head(int width, int height, const std::string& title);
  void rule(const char* style, double x1, double y1, double x2, double y2);
  /// `anchor`: start, middle, end.
  void label(double x, double y, const char* anchor, const char* style, const std::string& words);
  /// Upwards.
  void turned(double x, double y, const std::string& words);
};

/// Text with the characters that mean something in XML replaced, and those that XML forbids left out.
std::string escape_xml(const std::string& text);

/// "0.25", with as many decimals as the step between ticks needs.
std::string tick_label(double value, double step);

/// Writes a file whole or not at all (datasets::AtomicFile); `invalid`, naming the path, if it is a folder or
/// in one that may not be written.
void write_picture(const std::string& path, const std::string& text);

}  // namespace troupe::tools
