// The instruction, which Go has no function for.

TEXT ·pause(SB), 4, $0-0 // 4: NOSPLIT, no room on the stack is asked for
	PAUSE
	RET
