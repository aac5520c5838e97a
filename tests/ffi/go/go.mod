module libattn.test

go 1.18
