// A Go program: goroutines with files, pipes, timers, a child process, signals, garbage collection.
package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"
)

func files(n int) {
	var group sync.WaitGroup
	for i := 0; i < n; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			name := fmt.Sprintf("file%02d", i)
			file, err := os.Create(name)
			if err != nil {
				panic(err)
			}
			for j := 0; j < 50; j++ {
				fmt.Fprintf(file, "%d %d\n", i, j)
			}
			if err := file.Sync(); err != nil {
				panic(err)
			}
			file.Close()
			data, _ := os.ReadFile(name)
			if len(data) == 0 {
				panic("empty")
			}
		}()
	}
	group.Wait()
}

func echo() string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		c, _ := listener.Accept()
		buffer := make([]byte, 16)
		n, _ := c.Read(buffer)
		c.Write(buffer[:n])
		c.Close()
	}()
	c, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	c.Write([]byte("echo"))
	buffer := make([]byte, 16)
	n, _ := c.Read(buffer)
	return string(buffer[:n])
}

func main() {
	files(30)
	for i := 0; i < 20; i++ {
		_ = make([]byte, 10<<20)
		runtime.GC()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1)
	fmt.Println("signal", <-signals)
	output, err := exec.Command("sh", "-c", "echo child; exit 0").Output()
	fmt.Printf("%s%v\n", output, err)
	err = exec.Command("sh", "-c", "exit 9").Run()
	fmt.Println(err)
	fmt.Println(echo())
	select {
	case <-time.After(20 * time.Millisecond):
		fmt.Println("timer")
	}
	done := make(chan int)
	for i := 0; i < 1000; i++ {
		go func() { done <- i }()
	}
	sum := 0
	for i := 0; i < 1000; i++ {
		sum += <-done
	}
	fmt.Println("sum", sum)
	os.Exit(5 - 5)
}
