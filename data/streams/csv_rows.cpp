#include "data/streams/csv_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <span>

#include "core/base/error.h"
#include "core/base/visible.h"
#include "data/formats/csv_records.h"
#include "data/formats/unchanged_file.h"
#include "data/streams/files.h"

namespace troupe::datasets {
namespace {

constexpr int64_t kRowStride = 8;

using Texts = std::vector<std::string>;

enum class ColumnType { unknown, whole, number, text };

// Whether float64 has this number exactly, if it is a whole one.
bool survives_float64(std::string_view text) {
  constexpr size_t kSafe = 15;  // digits
  text = csv_trimmed(text);
  if (text.starts_with('+') || text.starts_with('-')) text.remove_prefix(1);
  text.remove_prefix(std::min(text.find_first_not_of('0'), text.size()));
  if (text.size() <= kSafe || text.find_first_not_of("0123456789") != text.npos) return true;
  double d = 0;
  return csv_number(text, d) && fmt::format("{:.0f}", d) == text;
}

// A column's fields may still be these, by those that were seen.
struct Seen {
  bool value = false, missing = false, whole = true, number = true, exact = true;
  void see(const std::string& text) {
    if (csv_trimmed(text).empty()) {
      missing = true;
      return;
    }
    value = true;
    int64_t i;
    double d;
    whole = whole && csv_number(text, i);
    number = number && (whole || csv_number(text, d));
    exact = exact && survives_float64(text);
  }
  ColumnType type() const {
    if (!value || !number) return ColumnType::text;
    if (whole && !missing) return ColumnType::whole;
    return exact ? ColumnType::number : ColumnType::text;
  }
};

struct Table {
  CsvRowOptions options;
  Texts names;                  // of all columns
  std::vector<size_t> columns;  // that are fields
  std::vector<ColumnType> types;
  std::vector<Seen> seen;

  void begin(const std::string& path, const CsvRecords& records, const Texts& first) {
    Texts found;
    for (size_t i = 0; i < first.size(); ++i)
      found.push_back(options.header ? std::string(csv_trimmed(first[i])) : std::to_string(i));
    if (!names.empty()) {
      if (found != names)
        throw_invalid(fmt::format("[csv] {}: has the columns {}, and the first file {}", path,
                                  fmt::join(found, ", "), fmt::join(names, ", ")));
      return;
    }
    names = found;
    seen.resize(names.size());
    types.resize(names.size(), ColumnType::unknown);
    for (const std::string& name : options.columns) columns.push_back(place_of(records, name));
    if (columns.empty())
      for (const std::string& name : names) columns.push_back(place_of(records, name));
    for (const auto& [name, type] : options.types) {
      auto& t = types[place_of(records, name)];
      t = type == "int64" ? ColumnType::whole : type == "float64" ? ColumnType::number : ColumnType::text;
      if (t == ColumnType::text && type != "text")
        records.fail("the type of column " + in_quotes(name) + " is to be " + in_quotes(type) +
                     ", expected int64, float64 or text");
    }
  }
  size_t place_of(const CsvRecords& records, const std::string& name) const {
    const auto at = std::ranges::find(names, name);
    if (at == names.end())
      records.fail("no column " + in_quotes(name) + "; it has " + fmt::format("{}", fmt::join(names, ", ")));
    if (std::find(at + 1, names.end(), name) != names.end())
      records.fail("two columns are called " + in_quotes(name) + ": give them different names");
    return static_cast<size_t>(at - names.begin());
  }
  void see(const Texts& fields) {
    if (fields.size() == names.size())
      for (const size_t i : columns)
        if (types[i] == ColumnType::unknown) seen[i].see(fields[i]);
  }
  void found_types() {
    for (size_t i = 0; i < types.size(); ++i)
      if (types[i] == ColumnType::unknown) types[i] = seen[i].type();
  }

  Value value(const CsvRecords& records, size_t column, const std::string& text) const {
    if (types[column] == ColumnType::text) return text;
    const auto refuse = [&](const char* expected) {
      records.fail(fmt::format("column {} ({}): {} is {}", column + 1, visible(names[column]),
                               in_quotes(text), expected));
    };
    if (types[column] == ColumnType::whole) {
      int64_t whole = 0;
      if (!csv_number(text, whole)) refuse("no whole number that fits int64");
      return whole;
    }
    double number = std::numeric_limits<double>::quiet_NaN();
    if (!csv_trimmed(text).empty() && !csv_number(text, number)) refuse("no finite number");
    return number;
  }
  Sample sample(const CsvRecords& records, const Texts& fields) const {
    if (fields.size() != names.size())
      records.fail(
          fmt::format("{} fields, expected {} as in the first record; the first is {}: was the file cut "
                      "off, or are quotes missing?",
                      fields.size(), names.size(), in_quotes(fields[0])));
    Sample out;
    for (const size_t i : columns) out.emplace(names[i], value(records, i, fields[i]));
    return out;
  }
};

// The next record, or what is wrong with it: then the record behind it begins in the next line. False at the
// end.
bool next_record(CsvRecords& records, Texts& fields, std::optional<Error>& wrong) {
  wrong.reset();
  try {
    return records.next(fields);
  } catch (const Error& e) {
    if (e.kind() != ErrorKind::invalid) throw;
    wrong = e;
    records.skip_line();
    return true;
  }
}

struct CsvFile {
  std::shared_ptr<const UnchangedFile> file;
  std::shared_ptr<const Table> table;
  std::vector<CsvPlace> begins;  // of every eighth row
  int64_t rows = 0;

  CsvFile(const std::string& path, const std::shared_ptr<Table>& t)
      : file(UnchangedFile::unpacked(path, "csv", "a CSV file")), table(t) {
    CsvRecords all = records({}, file->size());
    Texts fields;
    CsvPlace place;
    if (!all.next(fields)) throw_invalid("[csv] " + path + ": is empty, expected a CSV file");
    t->begin(path, all, fields);
    const auto note = [&] {
      if (rows++ % kRowStride == 0) begins.push_back(place);
    };
    if (!t->options.header) note(), t->see(fields);
    std::optional<Error> wrong;
    for (place = all.place(); next_record(all, fields, wrong); place = all.place()) {
      note();
      if (!wrong) t->see(fields);
    }
  }
  CsvRecords records(const CsvPlace& from, size_t end) const {
    return CsvRecords(
        file->path(), table->options.separator, table->options.max_record,
        [f = file, at = static_cast<size_t>(from.offset), end](void* to, size_t count) mutable {
          count = std::min(count, end - at);
          if (count > 0) f->read(at, {static_cast<std::byte*>(to), count});
          at += count;
          return count;
        },
        from);
  }
  int64_t size() const { return rows; }
  Sample read(int64_t number) const {
    const auto group = static_cast<size_t>(number / kRowStride);
    CsvRecords some =
        records(begins[group], group + 1 < begins.size() ? begins[group + 1].offset : file->size());
    Texts fields;
    std::optional<Error> wrong;
    for (int64_t i = number % kRowStride; i >= 0; --i)
      if (!next_record(some, fields, wrong))
        throw_error(ErrorKind::failed, "[csv] " + file->path() + ": was written to while it was read");
    if (wrong) throw *wrong;
    return table->sample(some, fields);
  }
};

}  // namespace

SourcePtr csv_rows(const std::vector<std::string>& files, const CsvRowOptions& options) {
  const auto table = std::make_shared<Table>();
  table->options = options;
  std::vector<CsvFile> all;
  for (const std::string& path : detail::files_of(files, "csv", {".csv", ".csv.gz", ".csv.zst"}))
    all.emplace_back(path, table);
  table->found_types();
  auto source = detail::samples_of(std::move(all));
  if (source->size() == 0) throw_invalid("[csv] " + files.front() + ": has no rows");
  return source;
}

}  // namespace troupe::datasets
