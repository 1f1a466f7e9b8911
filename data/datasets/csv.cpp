// Chooses columns by name, and turns their texts into numbers.
#include "data/datasets/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/base/error.h"
#include "core/base/visible.h"
#include "core/tensor/creation.h"

namespace troupe::datasets {
namespace {

constexpr size_t kMaxClasses = 65'536;

std::string list(const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < names.size() && i < 20; ++i) out += (i ? ", " : "") + in_quotes(names[i]);
  return out + (names.size() > 20 ? ", ..." : "");
}

}  // namespace

CsvReader::CsvReader(const std::string& path, CsvOptions options)
    : options_(std::move(options)), records_(path, options_.separator, options_.max_record) {
  if (options_.dtype != float32 && options_.dtype != float64 && options_.dtype != int64)
    throw_invalid("[csv] values of type " + std::string(name(options_.dtype)) +
                  ", expected float32, float64 or int64");
  if (options_.dtype == int64 && options_.missing == Missing::fill &&
      !(std::abs(options_.fill) <= 0x1p53 && options_.fill == std::trunc(options_.fill)))
    throw_invalid(
        fmt::format("[csv] the fill of missing int64 values is {}, expected a whole number", options_.fill));
  if (!records_.next(fields_)) throw_invalid("[csv] " + path + ": is empty, expected a CSV file");
  if (options_.header) {
    header_ = fields_;
    for (std::string& name : header_) name = csv_trimmed(name);
  } else {
    for (size_t i = 0; i < fields_.size(); ++i) header_.push_back(std::to_string(i));
    pending_ = true;
  }
  const auto refuse_twice = [&](int64_t first, int64_t second) {
    records_.fail("columns " + std::to_string(first + 1) + " and " + std::to_string(second + 1) +
                  " are both called " + in_quotes(header_[static_cast<size_t>(first)]) +
                  ": give them different names, or name other columns in CsvOptions::columns");
  };
  const auto find = [&](const std::string& name) {
    const auto at = std::find(header_.begin(), header_.end(), name);
    if (at == header_.end()) {
      const std::string near = nearest(name, header_);
      records_.fail("no column " + in_quotes(name) +
                    (near.empty() ? "" : ", did you mean " + in_quotes(near) + "?") +
                    " It has: " + list(header_));
    }
    const auto second = std::find(at + 1, header_.end(), name);
    if (second != header_.end()) refuse_twice(at - header_.begin(), second - header_.begin());
    return static_cast<size_t>(at - header_.begin());
  };
  label_ = options_.label.empty() ? header_.size() : find(options_.label);
  for (const std::string& name : options_.columns) {
    columns_.push_back(find(name));
    if (std::find(columns_.begin(), columns_.end() - 1, columns_.back()) != columns_.end() - 1)
      throw_invalid("[csv] " + path + ": CsvOptions::columns names " + in_quotes(name) + " twice");
  }
  if (options_.columns.empty()) {
    std::map<std::string_view, size_t> first;
    for (size_t i = 0; i < header_.size(); ++i) {
      const auto [at, is_new] = first.emplace(header_[i], i);
      if (!is_new) refuse_twice(static_cast<int64_t>(at->second), static_cast<int64_t>(i));
      if (i != label_) columns_.push_back(i);
    }
  }
  for (const size_t i : columns_) names_.push_back(header_[i]);
}

bool CsvReader::next_record() {
  if (!std::exchange(pending_, false) && !records_.next(fields_)) return false;
  if (fields_.size() != header_.size())
    records_.fail(std::to_string(fields_.size()) + " fields, expected " + std::to_string(header_.size()) +
                  " as in the first record; the first is " + in_quotes(fields_[0]));
  return true;
}

bool CsvReader::is_missing(const std::string& text) const {
  const auto& texts = options_.missing_texts;
  return std::find(texts.begin(), texts.end(), csv_trimmed(text)) != texts.end();
}

std::string CsvReader::column_text(size_t column) const {
  return "column " + std::to_string(column + 1) +
         (options_.header ? " (" + visible(header_[column]) + ")" : "");
}

int64_t CsvReader::label() const {
  const std::string& text = fields_[label_];
  const auto& classes = options_.classes;
  if (!classes.empty()) {
    const auto at = std::find(classes.begin(), classes.end(), csv_trimmed(text));
    if (at == classes.end())
      records_.fail(column_text(label_) + ": unknown label " + in_quotes(text) + ", expected one of " +
                    list(classes));
    return at - classes.begin();
  }
  int64_t value;
  if (!csv_number(text, value) || value < 0)
    records_.fail(
        column_text(label_) + ": the label " + in_quotes(text) +
        " is no whole number from 0; for texts, set CsvOptions::classes (csv_classes collects them)");
  return value;
}

template <class T>
CsvTable CsvReader::read_as(int64_t rows) {
  std::vector<T> values;
  std::vector<int64_t> labels;
  int64_t count = 0;
  while (count < rows && next_record()) {
    const size_t kept = values.size();
    bool skip = false;
    if (label_ < header_.size()) {
      skip = is_missing(fields_[label_]);
      if (skip && options_.missing != Missing::skip_row)
        records_.fail(column_text(label_) + ": the label is missing (" + in_quotes(fields_[label_]) + ")");
    }
    for (size_t i = 0; i < columns_.size() && !skip; ++i) {
      const std::string& text = fields_[columns_[i]];
      T value{};
      if (is_missing(text)) {
        if (options_.missing == Missing::refuse)
          records_.fail(column_text(columns_[i]) + ": the value is missing (" + in_quotes(text) +
                        "); CsvOptions::missing says what to do then");
        skip = options_.missing == Missing::skip_row;
        if (!skip) value = static_cast<T>(options_.fill);
      } else if (!csv_number(text, value)) {
        records_.fail(column_text(columns_[i]) + ": " + in_quotes(text) + " is no " +
                      (std::is_integral_v<T> ? "whole number" : "finite number") + " that fits " +
                      std::string(name(dtype_of<T>)));
      }
      if (!skip) values.push_back(value);
    }
    if (skip) {
      values.resize(kept);
      continue;
    }
    if (label_ < header_.size()) labels.push_back(label());
    ++count;
  }
  CsvTable table;
  table.names = names_;
  table.values = empty({count, static_cast<int64_t>(columns_.size())}, dtype_of<T>);
  std::copy(values.begin(), values.end(), table.values.data<T>());
  if (label_ < header_.size()) table.labels = tensor(labels);
  return table;
}

CsvTable CsvReader::read(int64_t rows) {
  if (rows < 0) throw_invalid("[csv] " + std::to_string(rows) + " rows asked for, expected 0 or more");
  if (options_.dtype == int64) return read_as<int64_t>(rows);
  return options_.dtype == float64 ? read_as<double>(rows) : read_as<float>(rows);
}

std::vector<std::string> csv_classes(const std::string& path, CsvOptions options) {
  if (options.label.empty())
    throw_invalid("[csv] " + path + ": the classes of no column: set CsvOptions::label");
  CsvReader reader(path, std::move(options));
  std::set<std::string, std::less<>> found;
  while (reader.next_record()) {
    const std::string& text = reader.fields_[reader.label_];
    if (!reader.is_missing(text)) found.emplace(csv_trimmed(text));
    if (found.size() > kMaxClasses)
      reader.records_.fail(reader.column_text(reader.label_) + " has more than " +
                           std::to_string(kMaxClasses) + " different texts: no column of classes");
  }
  return {found.begin(), found.end()};
}

}  // namespace troupe::datasets
