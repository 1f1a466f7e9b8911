// Letters, digits and numbers in texts, whatever the locale of the program.
#pragma once
#include <optional>
#include <string_view>

namespace troupe {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
/// What names consist of: letters, digits and '_'.
constexpr bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

constexpr char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
constexpr bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
constexpr bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// All of `text`, but for spaces around it, as a finite number ("0.5", "-1e-3"); nothing if it is none.
std::optional<double> number_in(std::string_view text);

}  // namespace troupe
