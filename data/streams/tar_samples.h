// Samples of tar archives, as WebDataset has them.
#pragma once
#include <string>
#include <vector>

#include "data/formats/picture.h"
#include "data/streams/source.h"

namespace troupe::datasets {

struct TarOptions {
  PictureOptions pictures = {};
  bool decode = true;  ///< false: every field is its file's bytes
};

/// The samples of tar archives ("shards"). Files that follow each other and whose names are equal up to the
/// first dot of the last part are one: "__key__" is that name, and each file is a field by what follows the
/// dot, in lower case. What follows the last dot says what it is: txt, text (text), json, cls, id, index,
/// count (whole numbers), npy (a tensor), png, jpg, jpeg (a tensor, by `pictures`); others are bytes.
///
/// Where files lie is noted when an archive is opened, 40 bytes or so for each, so that each sample is read
/// by itself. Archives that are gzip or zstd data are unpacked into a temporary file (UnchangedFile). A
/// folder stands for its *.tar, *.tar.gz, *.tgz and *.tar.zst.
///
/// `invalid`: no file, one that is no tar archive, no sample in one. read() names archive, file and byte of
/// what it cannot read; of an archive that was cut off that is the last sample. `unimplemented`, naming the
/// package, in a build without libarchive.
SourcePtr tar_samples(const std::vector<std::string>& files, const TarOptions& options = {});

}  // namespace troupe::datasets
