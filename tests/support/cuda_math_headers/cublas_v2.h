// Declares, with the headers beside it, the names of CUDA's math libraries that LibTorch's headers
// use. The real headers come only in wheels of half a gigabyte, and the trainer's CUDA part uses
// none of these libraries.
#pragma once

typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
