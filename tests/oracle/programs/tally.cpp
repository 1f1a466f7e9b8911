// Counting, printing, and the table of what Troupe answers beyond PyTorch.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>

#include "tests/oracle/programs/run.h"
#include "tests/oracle/programs/values.h"
#include "tests/support/places.h"

namespace troupe::testing {
namespace {

using Counts = std::map<std::string, std::map<std::string, int64_t>>;

int64_t sum(const std::map<std::string, int64_t>& counts) {
  int64_t n = 0;
  for (const auto& [text, count] : counts) n += count;
  return n;
}

void print_counts(const char* title, const Counts& counts) {
  std::vector<std::pair<int64_t, std::string>> order;
  for (const auto& [op, texts] : counts) order.emplace_back(-sum(texts), op);
  std::sort(order.begin(), order.end());
  for (const auto& [negative, op] : order) {
    const auto& texts = counts.at(op);
    const auto most = std::max_element(texts.begin(), texts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    std::cout << "  " << title << " " << op << ": " << -negative << " (" << most->first << ")\n";
  }
}

std::string cut(const std::string& s) {
  const auto from = s.find_first_not_of(" `"), to = s.find_last_not_of(" `");
  return from == std::string::npos ? "" : s.substr(from, to - from + 1);
}

// Operator and beginning of PyTorch's error, of each row of the table under "More liberal".
std::vector<std::pair<std::string, std::string>> read_liberal() {
  const std::string path = std::string(testing::kSourceFolder) + "/docs/reference/pytorch-differences.md";
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::vector<std::pair<std::string, std::string>> rows;
  bool here = false;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("## ")) here = line.starts_with("## More liberal");
    if (!here || !line.starts_with("| `")) continue;
    std::vector<std::string> cells;
    std::istringstream in(line.substr(1));
    for (std::string cell; std::getline(in, cell, '|');) cells.push_back(cut(cell));
    if (cells.size() < 4) throw std::runtime_error(path + ": a row of fewer than four cells: " + line);
    std::istringstream names(cells[0]);
    for (std::string name; std::getline(names, name, ',');) rows.emplace_back(cut(name), cells[1]);
  }
  return rows;
}

}  // namespace

int64_t Tally::refusals() const {
  int64_t n = 0;
  for (const auto& [op, texts] : refused) n += sum(texts);
  return n;
}

void Tally::print(const std::string& title) const {
  const auto share = [&](int64_t n) {
    char text[16];
    std::snprintf(text, sizeof text, "%.1f %%", 100.0 * double(n) / double(std::max<int64_t>(statements, 1)));
    return std::to_string(n) + " (" + text + ")";
  };
  std::cout << "[" << title << "] " << programs << " programs, " << statements
            << " statements: " << share(agreed) << " agree, " << share(refusals()) << " refused, "
            << share(left_out) << " left out since they need a refused one";
  if (elsewhere) std::cout << ", " << share(elsewhere) << " ran in another actor";
  std::cout << "; gradients of " << gradients << " leaves agree; " << different.size() << " differ\n";
  print_counts("refused", refused);
  print_counts("more liberal", liberal);
}

bool documented_as_liberal(const std::string& op, const std::string& raises) {
  static const auto rows = read_liberal();
  return std::any_of(rows.begin(), rows.end(), [&](const auto& row) {
    return row.first == op && raises.find(row.second) != std::string::npos;
  });
}

bool wrong_in_pytorch(const Statement& s, const Tensor& result, const Wanted& wanted, double allowed) {
  if ((s.op != "norm" && s.op != "gelu") || Shape(wanted.shape) != result.shape()) return false;
  const std::vector<double> ours = result.to_vector<double>(),
                            theirs = make_tensor(wanted.data, result).to_vector<double>();
  for (size_t k = 0; k < ours.size(); ++k) {
    const double x = ours[k], y = theirs[k];
    if (x == y || std::fabs(x - y) <= allowed || (std::isnan(x) && std::isnan(y))) continue;
    const bool squares = std::isfinite(x) && x != 0 && !std::isnormal(x * x) && (y == 0 || std::isinf(y));
    if (s.op == "norm" ? !squares : !(x == INFINITY && std::isnan(y) && result.dtype() == float32))
      return false;
  }
  return true;
}

}  // namespace troupe::testing
