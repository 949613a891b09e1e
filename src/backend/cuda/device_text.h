#pragma once
// The files of device/, as text.

namespace tilewright::cuda {

extern const char* const kDeviceCuda;            ///< cuda.cuh
extern const char* const kDeviceEmulated;        ///< emulated.cuh
extern const char* const kDeviceEmulatedMatrix;  ///< emulated_matrix.cuh
extern const char* const kDeviceCommon;          ///< common.cuh
extern const char* const kDeviceRun;             ///< run.cuh

}  // namespace tilewright::cuda
