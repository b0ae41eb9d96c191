// Package browser tests the console in Chromium, on real brokers. It has no code for programs.
//
// It is a module of its own, so that programs which import the bus do not get the modules that drive
// a browser. "make console-shots" draws the pictures of docs/console.md with the same code.
package browser
