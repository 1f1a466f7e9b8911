// Tables of numbers in text files, as tensors.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/tensor/tensor.h"
#include "data/datasets/dataset.h"
#include "data/formats/csv_records.h"

namespace troupe::datasets {

/// What becomes of a row with a field that is missing.
enum class Missing {
  refuse,    ///< an error that names it
  skip_row,  ///< the row is left out
  fill,      ///< `CsvOptions::fill` takes its place; a missing label is refused
};

struct CsvOptions {
  char separator = ',';
  /// The first record holds names. Without it columns are called "0", "1", ...
  bool header = true;
  /// Columns to read, in this order; empty: all but the label.
  std::vector<std::string> columns;
  /// Column of the labels; empty: there is none.
  std::string label;
  /// Label texts in the order of their numbers (csv_classes collects them); empty: labels are whole numbers
  /// from 0.
  std::vector<std::string> classes;
  Missing missing = Missing::refuse;
  /// Texts that mean "missing".
  std::vector<std::string> missing_texts = {""};
  double fill = std::numeric_limits<double>::quiet_NaN();
  DType dtype = float32;                ///< of the values: float32, float64 or int64
  size_t max_record = size_t{1} << 20;  ///< bytes of the longest record that is read
};

struct CsvTable {
  std::vector<std::string> names;  ///< of the columns of `values`
  Tensor values;                   ///< [rows, columns]
  Tensor labels;                   ///< int64 [rows]; undefined without a label column
  int64_t rows() const { return values.size(0); }
  /// For a Loader.
  Dataset dataset() const { return {values, labels}; }
};

/// Reads a file, gzip and zstd data too, a part at a time, holding one record and the rows asked for. Not
/// synchronized.
class CsvReader {
 public:
  /// `invalid`, naming what there is: no regular file, an empty one, a column that is not there or repeats.
  explicit CsvReader(const std::string& path, CsvOptions options = {});

  /// The next rows, at most `rows` of them; none at the end of the file. `invalid`, naming file, line, column
  /// and text: a field that is no number of the dtype or not finite, a missing one, an unknown label, a
  /// record with more or fewer fields than the first. Spaces around a number are skipped.
  CsvTable read(int64_t rows = std::numeric_limits<int64_t>::max());
  const std::vector<std::string>& names() const& { return names_; }
  std::vector<std::string> names() && { return std::move(names_); }

 private:
  friend std::vector<std::string> csv_classes(const std::string&, CsvOptions);
  bool next_record();
  bool is_missing(const std::string& text) const;
  std::string column_text(size_t column) const;
  int64_t label() const;
  template <class T>
  CsvTable read_as(int64_t rows);

  CsvOptions options_;
  CsvRecords records_;
  std::vector<std::string> header_, names_, fields_;
  std::vector<size_t> columns_;
  size_t label_ = 0;
  bool pending_ = false;  // fields_ holds a record that was read to count its fields
};

/// All rows of a file.
inline CsvTable read_csv(const std::string& path, CsvOptions options = {}) {
  return CsvReader(path, std::move(options)).read();
}

/// The different texts in the label column, sorted, missing ones left out: for CsvOptions::classes. `invalid`
/// above 65,536 of them (it is no column of classes), and as CsvReader.
std::vector<std::string> csv_classes(const std::string& path, CsvOptions options);

}  // namespace troupe::datasets
