# The bytes of dslaunch-pmix. Assembled in the program's folder (agent/CMakeLists.txt).
	.section .rodata
	.globl dslaunch_pmix_program, dslaunch_pmix_program_end
dslaunch_pmix_program:
	.incbin "dslaunch-pmix"
dslaunch_pmix_program_end:
	.section .note.GNU-stack,"",%progbits
