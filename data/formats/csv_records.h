// The records of a CSV file (RFC 4180), one at a time.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/formats/file.h"

namespace troupe::datasets {

/// Splits a file into records and fields, in bounded memory. Lines end with LF or CRLF, or all with CR alone;
/// fields may be in double quotes, which may hold separators, line ends and doubled quotes. Empty lines are
/// skipped, as is a byte order mark of UTF-8. Not synchronized.
class CsvRecords {
 public:
  /// `invalid`: no regular file; a separator that is a quote or a line end. A record longer than `max_record`
  /// bytes is refused when it is read.
  CsvRecords(std::string path, char separator, size_t max_record);

  /// Reads the next record into `fields`; false at the end of the file. `invalid`, naming file and line: a
  /// quote inside an unquoted field, text after a closing quote, a quote that is never closed, a zero byte, a
  /// CR alone among lines that end with LF, or the other way round, a record that is too long.
  bool next(std::vector<std::string>& fields);
  /// Line (from 1) on which the record that was read last begins.
  int64_t line() const { return record_line_; }
  /// Error text about that record: "[csv] file:line: what".
  [[noreturn]] void fail(const std::string& what) const;

 private:
  int get();
  int peek();
  bool ends_line(int c);

  std::string path_;
  char separator_;
  size_t max_record_;
  OpenFile file_;
  std::array<char, 1 << 16> buffer_;
  size_t size_ = 0, at_ = 0;
  int64_t line_ = 1, record_line_ = 1;
  int end_ = 0;  // what lines end with, '\n' (or CRLF) or '\r'; 0: no line has ended yet
};

}  // namespace troupe::datasets
