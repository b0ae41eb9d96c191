package main

import "testing"

// The program handles its event in the second attempt, and ends.
func Test(*testing.T) { main() }
