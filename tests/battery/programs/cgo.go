// cgo.go: a dynamically linked Go program that calls C: goroutines compute, call C, wait for channels and for children.
package main

/*
#include <stdint.h>
static uint64_t mix(uint64_t rounds) {
    volatile uint64_t value = 1;
    for (uint64_t i = 0; i < rounds; i++)
        value = value * 6364136223846793005u + 1442695040888963407u;
    return value;
}
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
)

func compute(rounds uint64) uint64 {
	value := uint64(1)
	for i := uint64(0); i < rounds; i++ {
		value = value*6364136223846793005 + 1442695040888963407
	}
	return value
}

func deep(depth int, rounds uint64) uint64 {
	var frame [64]uint64
	frame[depth%64] = uint64(depth)
	if depth == 0 {
		return compute(rounds)
	}
	return deep(depth-1, rounds) + frame[depth%64]
}

func main() {
	if value := os.Getenv("UNSPOOL_SESSION") + os.Getenv("LD_PRELOAD"); value != "" {
		fmt.Println("environment:", value)
	}
	var group sync.WaitGroup
	results := make(chan uint64)
	for worker := 0; worker < 16; worker++ {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := 0; i < 20; i++ {
				if compute(100000) != uint64(C.mix(100000)) {
					fmt.Println("wrong")
				}
				results <- deep(i*20, 50000)
			}
		}()
	}
	go func() {
		group.Wait()
		close(results)
	}()
	sum := uint64(0)
	for result := range results {
		sum += result
	}
	out, err := exec.Command("/bin/echo", "child").Output()
	fmt.Println(sum, string(out), err)
	defer func() { fmt.Println("recovered:", recover() != nil) }()
	var nothing *int
	fmt.Println(*nothing)
}
