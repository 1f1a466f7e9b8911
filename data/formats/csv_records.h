// The records of a CSV file (RFC 4180), one at a time.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::datasets {

/// A number of a field, with spaces around it; false for other texts, and for numbers that are not finite or
/// that do not fit. T: int64_t, float, double.
template <class T>
bool csv_number(std::string_view text, T& value);
std::string_view csv_trimmed(std::string_view text);

/// A place between records, from which they can be read on.
struct CsvPlace {
  uint64_t offset = 0;  ///< bytes of the file, unpacked if it is packed
  int64_t line = 1;
  int end = 0;  ///< what lines end with: '\n' (or CRLF), or '\r'; 0: no line has ended yet
};

/// Splits a file into records and fields, in bounded memory. Lines end with LF or CRLF, or all with CR alone;
/// fields may be in double quotes, which may hold separators, line ends and doubled quotes. Empty lines are
/// skipped, as is a byte order mark of UTF-8. Packed files (ByteStream) are unpacked. Not synchronized.
class CsvRecords {
 public:
  /// `invalid`: no regular file; a separator that is a quote or a line end. A record longer than `max_record`
  /// bytes is refused when it is read.
  CsvRecords(std::string path, char separator, size_t max_record);
  /// Bytes that `fill` gives: as many as it is asked for, or fewer, and none at the end. `path` is for
  /// errors.
  using Fill = std::function<size_t(void*, size_t)>;
  CsvRecords(std::string path, char separator, size_t max_record, Fill fill, CsvPlace from = {});

  /// Reads the next record into `fields`; false at the end of the file. `invalid`, naming file and line: a
  /// quote inside an unquoted field, text after a closing quote, a quote that is never closed, a zero byte, a
  /// CR alone among lines that end with LF, or the other way round, a record that is too long.
  bool next(std::vector<std::string>& fields);
  /// Goes to the begin of the next line: the way on after an error.
  void skip_line();
  CsvPlace place() const { return {before_ + at_, line_, end_}; }
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
  Fill fill_;
  std::array<char, 1 << 16> buffer_;
  size_t size_ = 0, at_ = 0;
  uint64_t before_ = 0;  // bytes before the buffer
  int64_t line_ = 1, record_line_ = 1;
  int end_ = 0;
};

}  // namespace troupe::datasets
