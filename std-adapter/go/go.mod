module github.com/rigline/rigline/std-adapter/go

go 1.19
