// data/persuasion.txt as read-only bytes; the assembler's include path names its folder.
        .section .rodata
        .balign 16
        .global pareprop_persuasion_begin
        .hidden pareprop_persuasion_begin
        .type pareprop_persuasion_begin, %object
pareprop_persuasion_begin:
        .incbin "persuasion.txt"
        .size pareprop_persuasion_begin, . - pareprop_persuasion_begin
        .global pareprop_persuasion_end
        .hidden pareprop_persuasion_end
        .type pareprop_persuasion_end, %object
pareprop_persuasion_end:
        .byte 0
        .size pareprop_persuasion_end, 1
        .section .note.GNU-stack, "", %progbits
