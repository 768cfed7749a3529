// This header and those beside it declare the names of CUDA's math libraries that LibTorch's
// headers use. The real headers come only in wheels of half a gigabyte, and the trainer's CUDA part
// uses none of them.
#pragma once

typedef struct cublasContext* cublasHandle_t;
typedef enum { CUBLAS_STATUS_SUCCESS = 0 } cublasStatus_t;
