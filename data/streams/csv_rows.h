// Rows of CSV files as samples.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "data/streams/source.h"

namespace troupe::datasets {

struct CsvRowOptions {
  char separator = ',';
  bool header = true;  ///< the first record of each file holds names; without it they are "0", "1", ...
  std::vector<std::string> columns = {};  ///< that are fields; empty: all
  /// Types of columns: "int64", "float64" or "text". Those that are not named are found out from all rows:
  /// int64 or float64 where each field is one (a number that is missing is NaN, of float64), else text; also
  /// where float64 would change a whole number, as it does many beyond 2^53.
  std::map<std::string, std::string> types = {};
  size_t max_record = size_t{1} << 20;  ///< bytes of the longest record that is read
};

/// The rows of CSV files (CsvRecords), which may be larger than memory: fields by the names of the columns.
/// Only where every eighth row begins is in memory. Files that are gzip or zstd data are unpacked into a
/// temporary file (UnchangedFile). `invalid`: no file or no row, a column that is not there or is there
/// twice, files with other columns than the first. read() names file, line and column of a row that is wrong:
/// one with more or fewer fields, as of a file that was cut off, quotes that are not closed, a field that has
/// not the column's type.
SourcePtr csv_rows(const std::vector<std::string>& files, const CsvRowOptions& options = {});

}  // namespace troupe::datasets
