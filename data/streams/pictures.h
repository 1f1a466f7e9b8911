// Folders of pictures as samples.
#pragma once
#include <string>
#include <vector>

#include "data/formats/picture.h"
#include "data/streams/source.h"

namespace troupe::datasets {

/// The pictures (*.png, *.jpg, *.jpeg) of a folder, in the order of their paths, which alone are in memory:
/// "x", as read_picture() gives it. If they lie in folders of that folder, each of these is a class: "y" is
/// its number (picture_classes()). `invalid`: no folder, no picture there, pictures beside folders of
/// pictures. Files and folders whose names begin with a dot are passed over.
SourcePtr pictures(const std::string& folder, const PictureOptions& options = {});

/// The names of the folders in a folder that have pictures, sorted; none if pictures lie in it themselves.
std::vector<std::string> picture_classes(const std::string& folder);

}  // namespace troupe::datasets
