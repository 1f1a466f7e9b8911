// A small state machine over the bytes of the file.
#include "data/formats/csv_records.h"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/visible.h"
#include "data/formats/byte_stream.h"
#include "data/formats/file.h"

namespace troupe::datasets {

std::string_view csv_trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

template <class T>
bool csv_number(std::string_view text, T& value) {
  text = csv_trimmed(text);
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if constexpr (std::is_floating_point_v<T>) {
    if (error == std::errc::result_out_of_range && stop == end) {
      long double wide = 1;  // too small for T is 0, or nearly
      if (std::from_chars(text.data(), end, wide).ec != std::errc()) return false;
      value = static_cast<T>(wide);
      return std::abs(wide) < 1;
    }
    if (error == std::errc() && !std::isfinite(value)) return false;
  }
  return error == std::errc() && stop == end;
}
template bool csv_number(std::string_view, int64_t&);
template bool csv_number(std::string_view, float&);
template bool csv_number(std::string_view, double&);

CsvRecords::CsvRecords(std::string path, char separator, size_t max_record)
    : CsvRecords(path, separator, max_record,
                 [file = std::shared_ptr(ByteStream::open(path, "csv", "a CSV file"))](
                     void* to, size_t count) { return file->read(to, count); }) {}

CsvRecords::CsvRecords(std::string path, char separator, size_t max_record, Fill fill, CsvPlace from)
    : path_(std::move(path)),
      separator_(separator),
      max_record_(max_record),
      fill_(std::move(fill)),
      before_(from.offset),
      line_(from.line),
      end_(from.end) {
  if (separator == '"' || separator == '\n' || separator == '\r' || separator == '\0')
    throw_invalid("[csv] " + path_ + ": a quote, a line end or a zero byte cannot be the separator");
  if (from.offset > 0) return;
  peek();
  if (const std::string other = instead({buffer_.data(), size_}); !other.empty())
    throw_invalid("[csv] " + path_ + ": no CSV file" + other);
  if (peek() == 0xEF) {
    std::string mark;
    for (int i = 0; i < 3; ++i) mark += static_cast<char>(get());
    if (mark != "\xEF\xBB\xBF") at_ = 0;
  }
}

void CsvRecords::fail(const std::string& what) const {
  throw_invalid("[csv] " + path_ + ":" + std::to_string(record_line_) + ": " + what);
}

int CsvRecords::peek() {
  if (at_ == size_) {
    before_ += size_;
    size_ = fill_(buffer_.data(), buffer_.size());
    at_ = 0;
    if (size_ == 0) return EOF;
  }
  return static_cast<unsigned char>(buffer_[at_]);
}

int CsvRecords::get() {
  const int c = peek();
  if (c == EOF) return c;
  ++at_;
  if (c == '\n' || (c == '\r' && peek() != '\n')) ++line_;
  return c;
}

void CsvRecords::skip_line() {
  for (int c = get(); c != EOF && c != '\n' && (c != '\r' || peek() == '\n'); c = get()) continue;
}

// Whether c, outside of quotes, ends a line; of CRLF both are read. Lines of one file end in one way: a CR in
// a field, or one too many before an LF, would be rows that nobody wrote.
bool CsvRecords::ends_line(int c) {
  if (c != '\r' && c != '\n') return false;
  if (c == '\r' && peek() == '\n') c = get();
  if (end_ == 0) end_ = c;
  if (end_ != c)
    fail(c == '\r'
             ? "a CR without LF outside of quotes, and the lines before it end with LF; put the field in "
               "quotes, or let all lines end in one way"
             : "a line that ends with LF, and those before it end with CR alone; let all lines end in "
               "one way");
  return true;
}

bool CsvRecords::next(std::vector<std::string>& fields) {
  enum class At { begin, plain, quoted, closed } at = At::begin;
  size_t used = 0, bytes = 0;
  std::string* field = nullptr;
  const auto begin_field = [&] {  // keeps the memory of the record before
    if (used == fields.size()) fields.emplace_back();
    field = &fields[used++];
    field->clear();
    at = At::begin;
  };
  record_line_ = line_;
  begin_field();
  for (;;) {
    const int c = get();
    if (c == EOF) {
      if (at == At::quoted) fail("a quote is opened in field " + std::to_string(used) + " and never closed");
      if (used == 1 && at == At::begin) return false;
      break;
    }
    if (at != At::quoted && ends_line(c)) {
      if (used > 1 || at != At::begin) break;
      record_line_ = line_;  // an empty line
      bytes = 0;
      continue;
    }
    if (++bytes > max_record_)
      fail("a record of more than " + std::to_string(max_record_) +
           " bytes; is it a CSV file, and are its quotes closed? CsvOptions::max_record sets the limit");
    if (c == 0) fail("a zero byte in field " + std::to_string(used) + ": not a text file");
    if (at == At::quoted) {
      if (c != '"') {
        *field += static_cast<char>(c);
      } else if (peek() == '"') {
        *field += static_cast<char>(get());
      } else {
        at = At::closed;
      }
      continue;
    }
    if (c == static_cast<unsigned char>(separator_)) {
      begin_field();
    } else if (at == At::closed) {
      fail("text after the closing quote of field " + std::to_string(used) + " (" + in_quotes(*field) +
           "), expected a separator or the end of the line");
    } else if (c == '"' && at == At::begin) {
      at = At::quoted;
    } else if (c == '"') {
      fail("a quote inside the unquoted field " + std::to_string(used) + " (" + in_quotes(*field) +
           "); put the whole field in quotes and double the quotes in it");
    } else {
      *field += static_cast<char>(c);
      at = At::plain;
    }
  }
  fields.resize(used);
  return true;
}

}  // namespace troupe::datasets
