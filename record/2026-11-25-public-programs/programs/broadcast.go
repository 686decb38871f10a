// Goroutines of which one finds a token each time: go run broadcast.go WAITERS TOKENS
package main

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

var (
	mutex                                   sync.Mutex
	changed                                 = sync.NewCond(&mutex)
	tokens, waiting, woken, needless, taken int
	over                                    bool
)

func take(done *sync.WaitGroup) {
	defer done.Done()
	mutex.Lock()
	defer mutex.Unlock()
	for {
		slept := false
		for tokens == 0 && !over {
			if slept {
				needless++
			}
			waiting++
			changed.Wait()
			waiting--
			woken++
			slept = true
		}
		if tokens == 0 {
			return
		}
		tokens--
		taken++
	}
}

//go:noinline
func put() {
	mutex.Lock()
	tokens++
	changed.Broadcast()
	mutex.Unlock()
}

// All that were woken before have looked and wait again: only then is the next a herd of all.
func untilAllWait(waiters, before int) {
	for {
		mutex.Lock()
		ready := waiting == waiters && woken == before*waiters
		mutex.Unlock()
		if ready {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func argument(n, otherwise int) int {
	if len(os.Args) > n {
		value, err := strconv.Atoi(os.Args[n])
		if err != nil {
			panic(err)
		}
		return value
	}
	return otherwise
}

func main() {
	waiters, rounds := argument(1, 8), argument(2, 500)
	var done sync.WaitGroup
	done.Add(waiters)
	for n := 0; n < waiters; n++ {
		go take(&done)
	}
	for n := 0; n < rounds; n++ {
		untilAllWait(waiters, n)
		put()
	}
	untilAllWait(waiters, rounds)
	mutex.Lock()
	over = true
	changed.Broadcast()
	mutex.Unlock()
	done.Wait()
	fmt.Printf("truth: goroutines woken %d, needless %d, taken %d\n", woken, needless, taken)
}
