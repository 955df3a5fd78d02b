#pragma once

// PyTorch's header has no include guard of its own.
#include <ATen/core/TransformationHelper.h>
