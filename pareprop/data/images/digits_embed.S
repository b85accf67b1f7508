// data/digits.csv as read-only bytes; the assembler's include path names its folder.
        .section .rodata
        .balign 16
        .global pareprop_digits_csv_begin
        .hidden pareprop_digits_csv_begin
        .type pareprop_digits_csv_begin, %object
pareprop_digits_csv_begin:
        .incbin "digits.csv"
        .size pareprop_digits_csv_begin, . - pareprop_digits_csv_begin
        .global pareprop_digits_csv_end
        .hidden pareprop_digits_csv_end
        .type pareprop_digits_csv_end, %object
pareprop_digits_csv_end:
        .byte 0
        .size pareprop_digits_csv_end, 1
        .section .note.GNU-stack, "", %progbits
