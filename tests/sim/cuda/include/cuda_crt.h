/*
 * cuda_crt.h - what programs compiled by nvcc call behind the launch syntax: in no header of the
 * runtime that C programs could include. Context: the stand-in libcudart and test programs.
 */
#ifndef SIM_CUDA_CRT_H
#define SIM_CUDA_CRT_H

#include <cuda_runtime_api.h>

void **__cudaRegisterFatBinary(void *binary);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function,
                            const char *device_name, int thread_limit, void *tid, void *bid,
                            void *block, void *grid, int *warp_size);
void __cudaRegisterVar(void **handle, char *host_variable, char *device_address,
                       const char *device_name, int external, size_t size, int constant,
                       int global);
void __cudaRegisterManagedVar(void **handle, void **host_variable, char *device_address,
                              const char *device_name, int external, size_t size, int constant,
                              int global);
char __cudaInitModule(void **handle);
unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);

/* since CUDA 13 in place of cudaLaunchKernel */
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared_bytes, cudaStream_t stream);

#endif
