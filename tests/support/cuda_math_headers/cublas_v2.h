// With those beside it: what LibTorch's headers name of CUDA's math libraries, whose own headers
// come only in wheels of half a gigabyte. The CUDA part of the trainer uses nothing of them.
#pragma once

typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
